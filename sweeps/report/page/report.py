"""Makes a sweep's report: the page and the pictures in a folder, and the same among the artifacts of its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.constants import REPORT_ARTIFACTS, REPORT_PAGE
from sweeps.report.page.document import render
from sweeps.report.page.drawing import Section
from sweeps.report.page.front import pareto_front
from sweeps.report.page.learning_curves import best_so_far, learning_curves
from sweeps.report.page.nights import nights_section, recorded_nights, write_picture
from sweeps.report.page.parameters import Importance, by_importance, contours, importance, importances, parallel, slices
from sweeps.report.page.pictures import draw_pictures
from sweeps.report.page.report_data import Material, gather
from sweeps.report.page.timeline import timeline
from sweeps.tracking.client import connect
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient

CLASSIC = "?workflowType=machine_learning"
"""Without this MLflow shows its pages for language-model applications."""
DESCRIPTION = "mlflow.note.content"
"""MLflow's tag."""


def make_report(record: SweepRecord, folder: Path) -> Path:
    """Write the report into a folder, and attach it to the sweep's run in MLflow; the page's path.

    Args:
        record: The sweep, which may still be running.
        folder: For the page and the pictures; made if it is not there. An earlier report in it is replaced.

    Raises:
        TrackingUnreachable: The server does not answer.
        OSError: The folder cannot be written.
    """
    material, nights = gather(record), recorded_nights(record)
    found = [importances(material, index) for index in range(len(record.metrics))]
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / REPORT_PAGE
    sections = [*([] if nights is None else [nights_section(nights)]), *_sections(material, found)]
    page.write_text(render(material, sections), encoding="utf-8")
    pictures = draw_pictures(material, found, folder)
    if nights is not None:
        pictures.append(write_picture(nights, folder / "nights.png"))
    client = connect(record.mlflow.tracking_uri)
    for path in (page, *pictures):  # not the folder: it may be one in which other things are
        client.log_artifact(record.mlflow.run_id, str(path), REPORT_ARTIFACTS)
    _point_at(client, record)
    return page


def _point_at(client: MlflowClient, record: SweepRecord) -> None:
    """The description of the sweep's run leads to its report."""
    ids = record.mlflow
    address = f"#/experiments/{ids.experiment_id}/runs/{ids.run_id}/artifacts/{REPORT_ARTIFACTS}/{REPORT_PAGE}{CLASSIC}"
    description = client.get_run(ids.run_id).data.tags.get(DESCRIPTION, "")
    if address not in description:
        client.set_tag(ids.run_id, DESCRIPTION, f"{description}\n\n[The report with its figures]({address})".strip())


def _sections(material: Material, found: Sequence[Mapping[str, Importance]]) -> Iterator[Section]:
    """The figures that this sweep has something to show in."""
    if not material.record.trials:
        return
    order = by_importance(material, found[0])
    made = (
        pareto_front(material),
        best_so_far(material) if material.valued else None,
        learning_curves(material),
        parallel(material, order),
        importance(material, found),
        slices(material, order),
        contours(material, order),
        timeline(material),
    )
    yield from (section for section in made if section is not None)
