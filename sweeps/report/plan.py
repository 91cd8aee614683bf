"""The plan of a sweep, as ``run --dry-run`` prints it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from sweeps.config import SWEEP_CONFIG
from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.plan import Plan


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan as ``--dry-run --json`` prints it."""
    fit = plan.local_fit
    return {
        "sweep": plan.name,
        "config": SWEEP_CONFIG.dump_python(plan.config, mode="json", by_alias=True),
        "fixed": plan.composition.fixed,
        "trial": None
        if fit is None
        else {"num_workers": fit.num_workers, "per_worker": fit.per_worker, "concurrent": fit.concurrent},
    }


def print_plan(plan: Plan, console: Console) -> None:
    console.print(plan.composition.as_yaml().rstrip(), markup=False, highlight=False, soft_wrap=True)
    console.print()
    table = Table("searched", "values", "when", box=None, pad_edge=False, header_style="dim")
    for path in plan.space:
        distribution = plan.space[path]
        when = ", ".join(f"{other} = {value}" for other, value in distribution.when.items())
        table.add_row(path, describe_distribution(distribution), when)
    console.print(table)
    for path in plan.composition.fixed:
        console.print(f"{path} is given a value, and is not searched", markup=False)
    search, fit = plan.config.search, plan.local_fit
    objectives = " and ".join(f"{mode} of {metric}" for metric, mode in zip(search.metrics, search.modes, strict=True))
    console.print()
    console.print(f"sweep     {plan.name}: {search.num_trials} trials, {objectives}", markup=False)
    console.print(f"search    sampler {search.sampler.kind}, scheduler {search.scheduler.kind}", markup=False)
    needs = fit.describe() if fit else f"is asked of the cluster at {plan.config.cluster.address} when it starts"
    console.print(f"trial     {needs}", markup=False)
    console.print(f"folder    {plan.folder}", markup=False, soft_wrap=True)
    console.print(f"MLflow    {plan.config.tracking.uri}", markup=False, soft_wrap=True)
    console.print("Nothing was started.")


def describe_distribution(distribution: Distribution) -> str:
    """``0.0001 to 0.03, log`` or ``4, 8, 16``."""
    match distribution:
        case CategoricalDistribution(choices=choices):
            return ", ".join(map(str, choices))
        case OrdinalDistribution(choices=choices):
            return f"{', '.join(map(str, choices))}, in this order"
        case ConstantDistribution(value=value):
            return str(value)
    step = "" if distribution.step in (None, 1) else f", step {distribution.step:g}"
    return f"{distribution.low:g} to {distribution.high:g}{step}{', log' if distribution.log else ''}"
