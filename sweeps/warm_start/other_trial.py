"""Trials of another program, with its names of parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.errors import UserError

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
"""Types of files that hold a table of trials."""


@dataclass(frozen=True)
class OtherTrial:
    """Trial as recorded by another program."""

    params: Mapping[str, Any]
    """Values by that program's parameter names; may be strings."""
    value: float | None
    unusable: str | None = None
    """Reason to leave the trial out, such as ``state FAIL``; None: it is used if it has a value."""


@dataclass(frozen=True)
class OtherSearch:
    """All trials of one source."""

    name: str
    """Name for messages."""
    trials: Sequence[OtherTrial]
    mode: str | None
    """Whether ``min`` or ``max`` of the values is best; None: as in this search."""
    value_name: str
    """Name of the values, for messages."""
    note: str = ""
    """Description of how it was read."""


def address(key: str, text: str) -> str:
    """Return a file or address from the config, with ``$NAME`` replaced by the environment variable's value.

    Raises:
        UserError: The variable is not set.
    """
    if not text.startswith("$"):
        return text
    value = os.environ.get(text[1:])
    if not value:
        raise UserError(f"{key}={text}: the environment variable {text[1:]} is not set; set it to the address")
    return value


def existing_file(key: str, path: Path) -> Path:
    """Check that a file can be read, and return its path.

    Raises:
        UserError: There is no such file, or it cannot be read.
    """
    if not path.expanduser().is_file():
        raise UserError(f"{key}={path}: there is no such file; correct the path (relative to {Path.cwd()})")
    if not os.access(path.expanduser(), os.R_OK):
        raise UserError(f"{key}={path}: the file cannot be read; change its permissions")
    return path.expanduser()
