"""Options of a plan's searcher: sampler, first points, advisors and stop rules, for a sweep and for a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optuna

from sweeps.config.search import Stop
from sweeps.plan.plan import Plan
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.advisors.failures import FailureAdvisor
from sweeps.search.advisors.memory import MemoryEstimate
from sweeps.search.advisors.priors import PriorAdvisor
from sweeps.search.expected_improvement import ExpectedImprovement
from sweeps.search.samplers.build_sampler import build_sampler, shuffled
from sweeps.search.samplers.transfer import EarlierTrials
from sweeps.search.stop_rules import stop_reason, too_little_improvement


def searcher_options(plan: Plan, memory: MemoryEstimate | None = None) -> dict[str, Any]:
    """Return the keyword arguments of ``OptunaSearcher`` that follow from a plan alone. The estimate of the trials'
    memory may refuse points."""
    search = plan.config.search
    # Otherwise random points of the search would be those of its stages again.
    seed = plan.config.seed if plan.stage is None else (plan.config.seed + plan.stage.number) % 2**32
    is_grid = search.sampler.kind == "grid"
    sources = [*plan.results_of_stages, *plan.warm_start]
    last_counts = search.value == "last"
    earlier = EarlierTrials(sources, plan.space, search.modes[0], seed, last_counts=last_counts) if sources else None
    return {
        "metric": search.metrics,
        "mode": search.modes,
        "sampler": build_sampler(
            search.sampler,
            seed,
            plan.space,
            earlier,
            len(search.metrics),
            plan.points.lookup,
            plan.points.constraints.allows,
        ),
        "num_trials": search.num_trials,
        "points": plan.first_points(),
        "grid": shuffled(plan.points.grid(), seed) if is_grid else None,
        "duplicates": search.duplicates,
        "limits": search.limits,
        "last_counts": last_counts,
        "lookup": plan.points.lookup,
        "validate": plan.check_point,
        "advisors": _advisors(plan, memory, seed),
    }


def _advisors(plan: Plan, memory: MemoryEstimate | None, seed: int) -> list[Advisor]:
    """Return the advisors of a search: for priors, memory limits and failures; each abstains if it has no data."""
    advisors: list[Advisor] = [PriorAdvisor(plan.space, seed)]
    if memory is not None:
        advisors.append(memory)
    if plan.config.search.avoid_failures:
        advisors.append(FailureAdvisor(plan.space))
    return advisors


def stop_rule(plan: Plan, stop: Callable[[], Stop]) -> Callable[[optuna.Study], str | None]:
    """Return a function that gives the reason to start no further trial, if there is one: a target, a plateau, or too
    small an expected improvement. The rules may change while the sweep runs."""
    mode, last_counts = plan.config.search.modes[0], plan.config.search.value == "last"
    points = plan.points
    improvement = ExpectedImprovement(plan.space, points.lookup, mode, plan.config.seed, points.constraints.allows)
    return lambda study: (
        stop_reason(stop(), mode, study, last_counts=last_counts) or too_little_improvement(stop(), improvement, study)
    )
