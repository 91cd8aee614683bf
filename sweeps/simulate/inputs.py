"""Plan and table of a simulation, checked before Ray and Optuna are imported, whose imports take seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sweeps.config.objectives import Objectives
from sweeps.config.search import Search
from sweeps.errors import ConfigError
from sweeps.plan.plan import Plan
from sweeps.simulate.recorded_table import CurveTable, read_table
from sweeps.simulate.regret import Scale, scale_of


@dataclass(frozen=True)
class Inputs:
    """Plan of a sweep, and the table with the data that its search needs."""

    plan: Plan
    table: CurveTable
    objectives: Objectives
    scale: Scale
    """Reference values of the table, with which the search is compared."""


def read_inputs(plan: Plan, table: Path) -> Inputs:
    """Read the table against which a plan is simulated.

    Raises:
        UserError: The table cannot be used for this sweep, its scheduler changes trials while they train, it has
            stages, or its winner is to be confirmed.
    """
    search = plan.config.search
    _check_search(search)
    curves = read_table(table, plan.space, plan.points.lookup, [*search.metrics, *search.limits])
    resource = "evaluations" if search.scheduler.kind == "none" else search.scheduler.resource
    if resource not in {"evaluations", "steps", "seconds", *curves.metric_names()}:
        raise ConfigError(
            f"search.scheduler.resource={resource}: {table} has no column {resource} of numbers; add it, or count in "
            "evaluations (the rows of a configuration), steps or seconds"
        )
    objectives = Objectives.of(search)
    return Inputs(plan, curves, objectives, scale_of(curves, objectives))


def _check_search(search: Search) -> None:
    """Check that a table has the curves of all trainings of a search.

    Raises:
        ConfigError: The search trains in ways for which a table has no curves.
    """
    if search.copies_trials:
        raise ConfigError(
            f"search.scheduler.kind={search.scheduler.kind}: changes values while a trial trains, for which a table "
            "has no curves; simulate asha, hyperband, freeze_thaw or none"
        )
    if search.confirm:
        raise ConfigError(
            f"search.confirm={search.confirm}: repeats train with other seeds, for which a table has no curves; "
            "simulate with search.confirm=0"
        )
    if search.stages:
        raise ConfigError(
            f"search.stages: has {len(search.stages)}, whose trainings differ from the sweep's, and a table has no "
            "curves of them; simulate with search.stages=[]"
        )
