"""Report of a sweep: the page and its images in a folder, and also as artifacts of the sweep's run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.constants import REPORT_ARTIFACTS, REPORT_PAGE, TAG_DESCRIPTION
from sweeps.report.figures.importance import importances
from sweeps.report.figures.nights import nights_section, recorded_nights
from sweeps.report.figures.sections import make_sections, write_images
from sweeps.report.page.document import render
from sweeps.report.report_data import gather
from sweeps.tracking.client import connect
from sweeps.tracking.mlflow_pages import run_page
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient


def make_report(record: SweepRecord, folder: Path) -> Path:
    """Write the report into a folder, where an earlier one is replaced, and attach it to the sweep's run in MLflow;
    returns the page's path. The sweep may still be running.

    Raises:
        TrackingUnreachable: The server does not answer.
        OSError: The folder cannot be written.
    """
    data, nights = gather(record), recorded_nights(record)
    found = [importances(data, index) for index in range(len(record.metrics))]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / REPORT_PAGE
    of_sweep, of_schedule = make_sections(data, found), [] if nights is None else [nights_section(nights)]
    page.write_text(render(data, [*of_schedule, *of_sweep]), encoding="utf-8")
    images = write_images(of_sweep, folder, record.sweep) if data.valued else []
    images += write_images(of_schedule, folder, nights.schedule if nights is not None else "")
    client = connect(record.mlflow.tracking_uri)
    for path in (page, *images):  # one by one, since the folder may have other files
        client.log_artifact(record.mlflow.run_id, str(path), REPORT_ARTIFACTS)
    _link_from_description(client, record)
    return page


def _link_from_description(client: MlflowClient, record: SweepRecord) -> None:
    """Link the report from the description of the sweep's run."""
    run_id = record.mlflow.run_id
    address = run_page(record.mlflow, f"{REPORT_ARTIFACTS}/{REPORT_PAGE}")
    description = client.get_run(run_id).data.tags.get(TAG_DESCRIPTION, "")
    if address not in description:
        client.set_tag(run_id, TAG_DESCRIPTION, f"{description}\n\n[The report with its figures]({address})".strip())
