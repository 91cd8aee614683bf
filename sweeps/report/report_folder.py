"""Path of a sweep's report."""

from __future__ import annotations

import os
from pathlib import Path

from sweeps.constants import REPORT_ARTIFACTS, REPORT_PAGE, TAG_FOLDER
from sweeps.errors import UserError
from sweeps.storage.location import is_remote, working_copy
from sweeps.tracking.record import SweepRecord


def report_folder(record: SweepRecord) -> Path:
    """Report folder in the sweep's folder, or in the working folder if the sweep's is on another machine or another
    user's."""
    location = record.tags.get(TAG_FOLDER, "")
    folder = working_copy(location) if is_remote(location) else Path(location)
    if folder.is_absolute() and os.access(folder, os.X_OK):
        return folder / REPORT_ARTIFACTS
    return Path.cwd() / f"{record.sweep}-{REPORT_ARTIFACTS}"


def make_folder(folder: Path) -> Path:
    """Make a report's folder if it does not exist.

    Raises:
        UserError: The folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        page, is_new = folder / REPORT_PAGE, not (folder / REPORT_PAGE).exists()
        page.touch()
        if is_new:  # an empty page would be shown as the report if it cannot be made
            page.unlink()
    except OSError as error:
        raise UserError(
            f"{folder}: the report cannot be written there ({error.strerror}); give another folder with --output"
        ) from None
    return folder


def existing_report(record: SweepRecord) -> Path | None:
    """Path of the report's page; None if it does not exist on this machine."""
    page = report_folder(record) / REPORT_PAGE
    return page if page.is_file() else None
