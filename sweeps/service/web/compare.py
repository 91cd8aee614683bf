"""Page that compares sweeps: best values, time, worker-hours, their figure, and differences of their configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from sweeps.errors import SweepsError
from sweeps.report.comparison import MOST_DIFFERENCES, compare_sweeps
from sweeps.report.figures.comparison import comparison_figure
from sweeps.report.figures.section import Section, SectionFigure
from sweeps.service.auth.auth import Reader, expensive
from sweeps.service.auth.principal import Principal
from sweeps.service.web.error_pages import PageRoute
from sweeps.service.web.figures import as_json
from sweeps.service.web.pages import Pages, Shared
from sweeps.service.web.rendering import conditional

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MOST = 20
"""Largest number of compared sweeps; as in the API."""
OFFERED = 200
"""Largest number of suggested names."""
TEXT = (
    "The best value until then of each sweep, against trials, time, and hours of workers or GPUs. The axis fits the "
    "second half of the trials; double-click the figure to see all."
)

Names = Annotated[list[Annotated[str, Query(max_length=200)]], Query(max_length=MOST)]


@router.get("/compare", dependencies=[Depends(expensive)])
def compare(
    request: Request,
    pages: Shared,
    principal: Reader,
    sweep: Names = [],  # noqa: B006 - a default
) -> Response:
    """Form for the names, and the comparison of the named sweeps."""
    names = list(dict.fromkeys(name.strip() for name in sweep if name.strip()))
    comparison, trouble = None, ""
    if len(names) > 1:
        try:
            comparison = compare_sweeps([pages.service.records.sweep(principal, name) for name in names])
        except SweepsError as error:
            trouble = str(error)
    return pages.answer(
        request,
        "compare.html",
        principal,
        status=422 if trouble else 200,
        here="Sweeps",
        names=names,
        offered=_offered(pages, principal, names),
        most=MOST,
        trouble=trouble,
        comparison=comparison,
        figure=f"/compare/figure?{urlencode([('sweep', name) for name in names])}",
        differences=[] if comparison is None else list(comparison.differences.items())[:MOST_DIFFERENCES],
    )


@router.get("/compare/figure", dependencies=[Depends(expensive)])
def figure(request: Request, pages: Shared, principal: Reader, sweep: Names) -> Response:
    """The figure of a comparison as JSON."""
    compared = compare_sweeps([pages.service.records.sweep(principal, name) for name in dict.fromkeys(sweep)])
    figures = [SectionFigure(figure=comparison_figure(compared), min_width=680)]
    section = Section(slug="comparison", title="Comparison", text=TEXT, figures=figures)
    return conditional(request, as_json(section, ""), "application/json")


def _offered(pages: Pages, principal: Principal, names: Sequence[str]) -> list[str]:
    return [row.sweep for row in pages.rows(principal) if row.recorded and row.sweep not in names][:OFFERED]
