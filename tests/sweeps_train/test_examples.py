"""Examples in the docstrings of the training library, run as doctests."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import sweeps_train

# Scripts and users' code, which have no examples and import libraries that are extras; the examples of the standard
# library's text are tested where that is at hand.
NO_EXAMPLES = (
    "sweeps_train.__main__",
    "sweeps_train.examples",
    "sweeps_train.frameworks.lightning",
    "sweeps_train.data.standard_library",
)
MODULES = [
    module.name
    for module in pkgutil.walk_packages(sweeps_train.__path__, "sweeps_train.")
    if not module.name.startswith(NO_EXAMPLES)
]


@pytest.mark.parametrize("name", ["sweeps_train", *MODULES])
def test_every_example_gives_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path))
    result = doctest.testmod(importlib.import_module(name), verbose=False)
    assert result.failed == 0


@pytest.mark.parametrize("name", sweeps_train.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(sweeps_train, name).__doc__
