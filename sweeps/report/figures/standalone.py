"""Single figures of a report for use outside its page, with a title and a size. Both functions raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import plotly.graph_objects as go

from sweeps.errors import UnknownName
from sweeps.report.figures.image_files import write_image
from sweeps.report.figures.importance import importances
from sweeps.report.figures.section import Section, SectionFigure
from sweeps.report.figures.sections import SectionMaker, section_makers
from sweeps.report.report_data import gather
from sweeps.texts.suggestions import did_you_mean
from sweeps.tracking.record import SweepRecord

TITLE_HEIGHT = 56
"""Height of a figure's title, in pixels."""
IMAGE_WIDTH = 9.0
"""Width of a figure's image, in inches."""
PIXELS_PER_INCH = 80


class ReportFigure(go.Figure):  # type: ignore[misc]  # Plotly has no types
    """Plotly figure whose notebook output also has an image, for viewers that cannot run Plotly, such as GitHub and
    nbconvert's pages."""

    # Plotly's own methods show no image, and their HTML loads the library from the network.
    _ipython_display_ = None
    _repr_html_ = None

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, Any]:
        shown = go.Figure(self)
        title, shown.layout.title = self.layout.title.text or "", None
        image = io.BytesIO()
        size = (IMAGE_WIDTH, (self.layout.height or 450) / PIXELS_PER_INCH)
        write_image(image, [shown], size, title=title, file_format="png")
        plotly = json.loads(self.to_json())
        return {
            "application/vnd.plotly.v1+json": plotly,
            "image/png": base64.b64encode(image.getvalue()).decode(),
            "text/plain": title,
        }


def sweep_figures(record: SweepRecord) -> dict[str, go.Figure]:
    """Return all figures of a sweep's report, by name, such as ``learning_curves``. If there are several figures of one
    kind, their names include their labels: ``slices, train.lr``."""
    return {
        name: figure for kind, make in _makers(record).items() for name, figure in _figures_of(kind, make()).items()
    }


def sweep_figure(record: SweepRecord, name: str) -> go.Figure:
    """Return the figure of a sweep's report with this name, or the first one of this kind.

    Raises:
        UnknownName: There is no such figure, or the sweep has no data for it.
    """
    kind, makers = name.partition(",")[0], _makers(record)
    if makers and kind not in makers:
        raise UnknownName(f"there is no figure {name!r}{did_you_mean(kind, makers)}")
    figures = _figures_of(kind, makers[kind]() if makers else None)
    if not figures:
        raise UnknownName(f"{record.sweep} has no data for the figure {name!r} yet: too few of its trials have values")
    if name not in {kind, *figures}:
        raise UnknownName(f"{record.sweep} has no figure {name!r}{did_you_mean(name, figures)}")
    return figures.get(name) or next(iter(figures.values()))


def _makers(record: SweepRecord) -> Mapping[str, SectionMaker]:
    if not record.trials:
        return {}
    data = gather(record)
    return section_makers(data, cache(lambda: [importances(data, index) for index in range(len(record.metrics))]))


def _figures_of(kind: str, section: Section | None) -> dict[str, go.Figure]:
    if section is None:
        return {}
    several = len(section.figures) > 1
    return {f"{kind}, {each.label}" if several else kind: _titled(section, each) for each in section.figures}


def _titled(section: Section, each: SectionFigure) -> go.Figure:
    label = f": {each.label}" if each.label and len(section.figures) > 1 else ""
    figure = ReportFigure(each.figure)
    top = (figure.layout.margin.t or 0) + TITLE_HEIGHT
    return figure.update_layout(
        title={"text": f"{section.title}{label}", "x": 0, "xref": "paper", "y": 0.98, "yanchor": "top"},
        margin={"t": top},
        height=each.height + TITLE_HEIGHT,
    )
