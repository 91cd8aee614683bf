"""Plan of a sweep, as printed by ``run --dry-run``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from sweeps.plan.automatic_choices import why_not_shared
from sweeps.plan.plan import Plan
from sweeps.plan.planned_memory import MemoryReport
from sweeps.report.expected_cost import ExpectedCost, Workload, workload_of
from sweeps.report.plain_console import plain_table, print_lines, printed_text
from sweeps.runtime.trials_at_once import describe_unknown
from sweeps.search.confirmation_race import MAX_RUNS, MIN_RUNS
from sweeps.space.descriptions import describe_conditions, describe_distribution
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import counted, value_text


@dataclass(frozen=True, kw_only=True)
class SpaceRow:
    """A searched parameter, as strings."""

    path: str
    distribution: str
    """Kind of the parameter's values: ``float, log``."""
    values: str
    """Range or choices."""
    default: str
    """The config's value, used by trials in which the parameter is not searched."""
    when: str
    """Condition under which the parameter is searched; empty: always."""


@dataclass(frozen=True, kw_only=True)
class PlanPreview:
    """A plan for display on a page. Can be pickled."""

    name: str
    config: str
    """The composed config, as YAML."""
    space: list[SpaceRow]
    fixed: list[str]
    """Paths that an override removed from the space."""
    constraints: list[str]
    objectives: str
    search: str
    """Sampler and scheduler."""
    work: Workload
    notes: list[str]
    options: dict[str, str]
    """Chosen option of each group."""


def plan_preview(plan: Plan) -> PlanPreview:
    """Return a plan's config, space and work, for a page."""
    search = plan.config.search
    return PlanPreview(
        name=plan.name,
        config=plan.composition.as_yaml(),
        space=[_space_row(plan, path) for path in plan.space],
        fixed=plan.composition.fixed,
        constraints=[*search.constraints],
        objectives=plan.config.search.objectives,
        search=plan.search_summary,
        work=workload_of(plan),
        notes=plan.notes,
        options=plan.composition.options,
    )


def _space_row(plan: Plan, path: str) -> SpaceRow:
    distribution = plan.space[path]
    log = ", log" if getattr(distribution, "log", False) else ""
    default = plan.points.lookup(path)
    return SpaceRow(
        path=path,
        distribution=f"{distribution.type}{log}",
        values=describe_distribution(distribution).replace(", log", ""),
        default="" if default is None else value_text(default),
        when=describe_conditions(distribution),
    )


def plan_document(
    plan: Plan,
    warnings: Sequence[str] = (),
    memory: MemoryReport | None = None,
    expected: ExpectedCost | None = None,
) -> dict[str, Any]:
    """Document that ``--dry-run --json`` prints."""
    fit = plan.local_fit
    return {
        "sweep": plan.name,
        "config": plan.config.as_document(),
        "fixed": plan.composition.fixed,
        "first": plan.points.first(),
        "notes": [*plan.notes, *warnings, *(memory.notes if memory is not None else [])],
        "expected": None if expected is None else expected.as_json(),
        "memory": None if memory is None else memory.as_json(),
        "trial": None
        if fit is None
        else {"num_workers": fit.num_workers, "per_worker": fit.per_worker, "concurrent": fit.concurrent},
    }


def plan_text(plan: Plan, cost: str | None = None) -> str:
    """Text that ``print_plan`` prints, for a client of the service."""
    return printed_text(lambda console: print_plan(plan, console, cost=cost))


def print_plan(
    plan: Plan,
    console: Console,
    warnings: Sequence[str] = (),
    memory: MemoryReport | None = None,
    cost: str | None = None,
) -> None:
    """Print a plan, with further notes, the memory that its trials will need and the description of its cost if these
    are known."""
    print_lines(console, plan.composition.as_yaml().rstrip(), "")
    table = plain_table("searched", "values", "when")
    for path in plan.space:
        distribution = plan.space[path]
        table.add_row(path, describe_distribution(distribution), describe_conditions(distribution))
    console.print(table)
    search = plan.config.search
    print_lines(
        console,
        *(f"{path} has a fixed value, and is not searched" for path in plan.composition.fixed),
        *(f"only where {constraint}" for constraint in search.constraints),
        "",
        f"sweep     {plan.name}: {counted(plan.num_trials, 'trial')}, {search.objectives}",
        *(stage.describe().replace(": ", "   ", 1) for stage in plan.stages),
    )
    if search.confirm:
        more = f"{MIN_RUNS * search.confirm} to {MAX_RUNS * search.confirm} more trainings"
        print_lines(console, f"confirm   the best {search.confirm} are trained again with other seeds: {more}")
    needs = plan.local_fit.describe() if plan.local_fit else describe_unknown(plan.config.cluster)
    print_lines(console, f"search    {plan.search_summary}", f"trial     {needs}")
    if plan.config.task.kind == "causal_lm" and plan.config.scaling.trials_per_group == 1:
        by_config = "scaling.trials_per_group=1; with more, several trials train on its workers"
        print_lines(console, f"sharing   none: {why_not_shared(plan.composition) or by_config}")
    if memory is not None:
        print_lines(console, f"memory    {memory.summary}")
        warnings = [*warnings, *memory.notes]
    if cost is not None:
        print_lines(console, f"time      {cost}")
    print_lines(
        console,
        f"folder    {plan.location}",
        f"MLflow    {redact_uri(plan.config.tracking.uri)}",
        *(f"note      {note}" for note in (*plan.notes, *warnings)),
        "Nothing was started.",
    )
