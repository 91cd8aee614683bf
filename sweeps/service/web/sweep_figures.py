"""Figures of a sweep's page, and the viewer's choices, which are all part of the page's address."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from sweeps.service.web.figure_cache import FigureCache
from sweeps.service.web.figures import (
    FIGURES,
    MOST_CHOSEN,
    TABLES,
    Choices,
    FigureChoices,
    figure_address,
    metric_names,
    read_choices,
)
from sweeps.service.web.trials_table import RANK
from sweeps.tracking.record import SweepRecord

AXES = {"good": "good curves", "all": "all values", "log": "all, logarithmic"}
"""Ranges of the value axis and their labels."""
FIRST_VIEW = "parallel"
"""Figure that is shown with the learning curves until another one is chosen."""


class SweepChoices(FigureChoices):
    """Query parameters of a sweep's page."""

    sort: str = Field(RANK, max_length=250)
    """Column by which the trials are sorted."""
    down: bool = False
    """Whether the highest values are first."""
    page: int = Field(1, ge=1, le=1_000_000)
    trial: list[str] = Field([], max_length=10 * MOST_CHOSEN)
    view: str = Field(FIRST_VIEW, max_length=20)
    """Figure below the learning curves."""
    done: str = Field("", max_length=200)
    """Action that led here."""


NOTHING_CHOSEN = SweepChoices.model_validate({})


def figures_view(figures: FigureCache, record: SweepRecord, chosen: SweepChoices) -> dict[str, Any]:
    """Variables of the template for the figures of a sweep; ``record`` is the result of ``settled``."""
    choices = read_choices(record, chosen.metric, chosen.axis, chosen.trial)
    views = {name: label for name, label in FIGURES.items() if name != "curves"}
    if len(record.metrics) < 2:
        del views["front"]
    view = chosen.view if chosen.view in views else FIRST_VIEW
    return {
        **curves_view(figures, record, choices),
        "view": view,
        "views": views,
        "view_address": figure_address(record.sweep, view, choices),
        "view_table": figure_address(record.sweep, view, choices, "/table") if view in TABLES else "",
        # Hidden fields of the form, for choices that it has no controls for.
        "kept": [(name, getattr(chosen, name)) for name in ("sort", "view", "page") if name in chosen.model_fields_set]
        + ([("down", 1)] if chosen.down else []),
    }


def curves_view(figures: FigureCache, record: SweepRecord, choices: Choices) -> dict[str, Any]:
    """Variables of the template for the learning curves only."""
    names = metric_names(figures, record)
    return {
        "metrics": names if choices.metric in names else [*names, choices.metric],
        "metric": choices.metric,
        "axes": AXES,
        "axis": choices.axis,
        "chosen": choices.trials,
        "curves_address": figure_address(record.sweep, "curves", choices),
        "curves_table": figure_address(record.sweep, "curves", choices, "/table"),
    }
