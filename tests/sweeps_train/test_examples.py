"""Examples in the docstrings of the training library, run as doctests."""

from __future__ import annotations

import doctest
import importlib
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
SOURCES = Path(sweeps_train.__file__).parent
FILES = [file for file in sorted(SOURCES.rglob("*.py")) if ">>>" in file.read_text(encoding="utf-8")]
MODULES = [
    name
    for file in FILES
    if not (
        name := ".".join(file.relative_to(SOURCES.parent).with_suffix("").parts).removesuffix(".__init__")
    ).startswith(NO_EXAMPLES)
]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_gives_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_CACHE", str(tmp_path))
    result = doctest.testmod(importlib.import_module(name), verbose=False)
    assert result.attempted > 0
    assert result.failed == 0
