"""Earlier trials in the sweep's folder: a sweep that continues learns from the same ones, wherever they came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sweeps.files import write_json
from sweeps.search.samplers.earlier_sweep import EarlierSweep
from sweeps.versions import Format

EARLIER_FILE = "warm_start.json"
FORMAT = Format(())
"""Versions of the files."""


def save_earlier(folder: Path, earlier: Sequence[EarlierSweep], file: str = EARLIER_FILE) -> None:
    """Write the trials that a new sweep learns from, if there are any, atomically; or those of one of its stages."""
    if earlier:
        write_json(folder / file, FORMAT.stamped({"earlier": [asdict(each) for each in earlier]}))


def saved_earlier(folder: Path, file: str = EARLIER_FILE) -> list[EarlierSweep] | None:
    """Return the trials that a sweep learns from, or those of one of its stages; None if its folder has none.

    Raises:
        NewerVersion: A later release wrote the file.
    """
    path = folder / file
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return [EarlierSweep(**each) for each in FORMAT.brought_forward(document, str(path))["earlier"]]
