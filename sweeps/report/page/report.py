"""Report of a sweep: the page and its images in a folder, and also as artifacts of the sweep's run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from sweeps.constants import REPORT_ARTIFACTS, REPORT_PAGE, TAG_DESCRIPTION
from sweeps.files.whole_files import replacing
from sweeps.report.figures.importance import importances
from sweeps.report.figures.nights import nights_section, recorded_nights
from sweeps.report.figures.sections import make_sections, write_images
from sweeps.report.page.document import render
from sweeps.report.report_data import gather
from sweeps.tracking.client import connect, first_cause
from sweeps.tracking.mlflow_pages import run_page
from sweeps.tracking.record import SweepRecord

logger = logging.getLogger(__name__)


def make_report(record: SweepRecord, folder: Path) -> Path:
    """Write the report into a folder, where an earlier one is replaced, and attach it to the sweep's run in MLflow if
    the user may change that; returns the page's path. The sweep may still be running.

    Raises:
        TrackingUnreachable: The server does not answer.
        OSError: The folder cannot be written.
    """
    data, nights = gather(record), recorded_nights(record)
    found = [importances(data, index) for index in range(len(record.metrics))]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / REPORT_PAGE
    of_sweep, of_schedule = make_sections(data, found), [] if nights is None else [nights_section(nights)]
    images = write_images(of_sweep, folder, record.sweep) if data.valued else []
    images += write_images(of_schedule, folder, nights.schedule if nights is not None else "")
    with replacing(page) as unfinished:  # a page that exists is whole: `show` and `resume` name it
        unfinished.write_text(render(data, [*of_schedule, *of_sweep]), encoding="utf-8")
    _attach(record, (page, *images))  # one by one, since the folder may have other files
    return page


def _attach(record: SweepRecord, paths: Sequence[Path]) -> None:
    """Attach the files of a report to the sweep's run, and link the page from the run's description."""
    run_id, address = record.mlflow.run_id, run_page(record.mlflow, f"{REPORT_ARTIFACTS}/{REPORT_PAGE}")
    try:
        client = connect(record.mlflow.tracking_uri)
        for path in paths:
            client.log_artifact(run_id, str(path), REPORT_ARTIFACTS)
        description = client.get_run(run_id).data.tags.get(TAG_DESCRIPTION, "")
        if address not in description:
            text = f"{description}\n\n[The report with its figures]({address})".strip()
            client.set_tag(run_id, TAG_DESCRIPTION, text)
    except Exception as error:  # noqa: BLE001 - of MLflow, the file system or boto; the report is complete without it
        logger.warning("the report is not attached to the run of %s in MLflow: %s", record.sweep, first_cause(error))
