"""Page that compares sweeps: best values, time, worker-hours, their figure, and differences of their configs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from sweeps.errors import SweepsError
from sweeps.report.comparison import MOST_DIFFERENCES, unknown_configs
from sweeps.report.figures.comparison import comparison_figure
from sweeps.report.figures.section import Section, SectionFigure
from sweeps.service.auth.auth import expensive
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.figures import as_json
from sweeps.service.web.pages import ReaderVisit
from sweeps.service.web.rendering import conditional

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST = 20
"""Maximum number of compared sweeps, as in the API."""
OFFERED = 200
"""Maximum number of suggested names."""
TEXT = (
    "Each sweep's best value so far, against trials, time, and hours of workers or GPUs. The axis fits the "
    "second half of the trials; double-click the figure to see all."
)

Names = Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=MOST)]


@router.get("/compare", dependencies=[Depends(expensive)])
def compare(visit: ReaderVisit, sweep: Names = []) -> Response:  # noqa: B006 - a default
    """Form for the names, and the comparison of the named sweeps."""
    names = list(dict.fromkeys(name.strip() for name in sweep if name.strip()))
    comparison = None
    if len(names) > 1:
        try:
            comparison = visit.operations.compare(names)
        except SweepsError as error:
            visit = visit.failing(str(error))
    offered = [row.sweep for row in visit.pages.rows(visit.principal) if row.recorded and row.sweep not in names]
    return visit.answer(
        "compare.html",
        names=names,
        offered=offered[:OFFERED],
        most=MOST,
        comparison=comparison,
        figure=f"/compare/figure?{urlencode([('sweep', name) for name in names])}",
        unknown=[] if comparison is None else unknown_configs(comparison),
        differences=[] if comparison is None else list(comparison.differences.items())[:MOST_DIFFERENCES],
    )


@router.get("/compare/figure", dependencies=[Depends(expensive)])
def figure(visit: ReaderVisit, sweep: Names) -> Response:
    """The figure of a comparison as JSON."""
    drawn = comparison_figure(visit.operations.compare([*dict.fromkeys(sweep)]))
    figures = [SectionFigure(figure=drawn, min_width=680)]
    section = Section(slug="comparison", title="Comparison", text=TEXT, figures=figures)
    return conditional(visit.request, as_json(section, ""), "application/json")
