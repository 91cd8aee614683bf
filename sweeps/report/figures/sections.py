"""All sections of a report, in their order, and their image files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweeps.report.figures.best_so_far import best_so_far
from sweeps.report.figures.contours import contours
from sweeps.report.figures.importance import Importance, by_importance, importance
from sweeps.report.figures.learning_curves import learning_curves
from sweeps.report.figures.parallel_coordinates import parallel_coordinates
from sweeps.report.figures.pareto_front import pareto_front
from sweeps.report.figures.section import Section
from sweeps.report.figures.slices import slices
from sweeps.report.figures.timeline import timeline
from sweeps.report.report_data import ReportData

SectionMaker = Callable[[], Section | None]
"""Function that returns a section; None if the sweep has no data for it."""


def section_makers(
    data: ReportData, found: Callable[[], Sequence[Mapping[str, Importance]]], marked: str | None = None
) -> Mapping[str, SectionMaker]:
    """Functions that make the sections, by the name of their figures, in the order of the report.

    Args:
        data: The sweep.
        found: Computes ``importances`` of each objective, which takes seconds; called only where they are needed.
        marked: Trial that is marked in the slices.
    """

    def order() -> list[str]:
        return by_importance(data, found()[0])

    return {
        "pareto_front": lambda: pareto_front(data),
        "best_so_far": lambda: best_so_far(data),
        "learning_curves": lambda: learning_curves(data),
        "parallel_coordinates": lambda: parallel_coordinates(data, order()),
        "importance": lambda: importance(data, found()),
        "slices": lambda: slices(data, order(), marked),
        "contours": lambda: contours(data, order()),
        "timeline": lambda: timeline(data),
    }


def make_sections(data: ReportData, found: Sequence[Mapping[str, Importance]]) -> list[Section]:
    """Sections of the figures that this sweep has data for."""
    if not data.record.trials:
        return []
    made = [make() for make in section_makers(data, lambda: found).values()]
    return [section for section in made if section is not None]


def write_images(sections: Sequence[Section], folder: Path, title: str) -> list[Path]:
    """Write the image of each section as a PNG file, for slides and mails; returns the paths."""
    from sweeps.report.figures.image_files import write_image

    paths = []
    for image in (section.image for section in sections if section.image is not None):
        paths.append(folder / f"{image.name}.png")
        write_image(paths[-1], image.figures, image.size, title=title, columns=image.columns)
    return paths
