"""Where a sweep's report is."""

from __future__ import annotations

from pathlib import Path

from sweeps.constants import REPORT_ARTIFACTS, REPORT_PAGE, TAG_FOLDER
from sweeps.tracking.record import SweepRecord


def report_folder(record: SweepRecord) -> Path:
    """In the sweep's folder; in the working folder, where that is on another machine."""
    folder = Path(record.tags.get(TAG_FOLDER, ""))
    if folder.is_absolute() and folder.is_dir():
        return folder / REPORT_ARTIFACTS
    return Path.cwd() / f"{record.sweep}-{REPORT_ARTIFACTS}"


def existing_report(record: SweepRecord) -> Path | None:
    """The page, if it has been made here."""
    page = report_folder(record) / REPORT_PAGE
    return page if page.is_file() else None
