"""Saves the earlier trials that a sweep learns from in the sweep's folder, so that a resumed sweep learns from the same
ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sweeps.files.checksums import parsed
from sweeps.files.versions import Format
from sweeps.files.whole_files import write_json
from sweeps.search.samplers.earlier_sweep import EarlierSweep

EARLIER_FILE = "warm_start.json"
FORMAT = Format(())
"""Versions of the files."""

logger = logging.getLogger(__name__)


def save_earlier(folder: Path, earlier: Sequence[EarlierSweep], file: str = EARLIER_FILE) -> None:
    """Write the trials that a new sweep or one of its stages learns from, if there are any, atomically."""
    if earlier:
        write_json(folder / file, FORMAT.stamped({"earlier": [asdict(each) for each in earlier]}), checksum=True)


def saved_earlier(folder: Path, file: str = EARLIER_FILE) -> list[EarlierSweep] | None:
    """Return the trials that a sweep or one of its stages learns from; None if its folder has none.

    Raises:
        NewerVersion: A later release wrote the file.
    """
    path = folder / file
    try:
        document = parsed(path.read_bytes())
    except OSError:
        return None
    except ValueError as error:
        logger.warning("%s is damaged (%s): the sweep continues without the trials in it", path, error)
        return None
    return [EarlierSweep(**each) for each in FORMAT.brought_forward(document, str(path))["earlier"]]
