"""Compositions of a test process: the same config with the same overrides is composed once, while no file of it has
changed. A composition takes a tenth of a second, and tests of the service ask for the same few all the time."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweeps.compose import hydra_composition
from sweeps.compose.search_path import ConfSearchPath
from sweeps.folders.conf_folders import conf_folder

Composed = tuple[dict[str, Any], dict[str, str]]

_compose = hydra_composition._compose
_composed: dict[Any, Composed] = {}


@contextmanager
def composing_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra_composition, "_compose", _once)
        yield


def _once(conf: str, arguments: Iterable[str], search_path: ConfSearchPath) -> Composed:
    arguments = tuple(arguments)
    users = [folder for folder in search_path.folders if folder != conf_folder()]
    key = conf, arguments, tuple((folder, _files(folder)) for folder in users)
    if key not in _composed:
        _composed[key] = _compose(conf, arguments, search_path)
    return copy.deepcopy(_composed[key])


def _files(folder: Path) -> tuple[tuple[str, int, int], ...]:
    found = ((str(file), file.stat()) for file in folder.rglob("*.yaml"))
    return tuple((file, status.st_mtime_ns, status.st_size) for file, status in found)
