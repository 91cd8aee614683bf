"""Scheduler of a plan, without workers."""

from __future__ import annotations

import math
from collections.abc import Callable

from ray.tune.schedulers import TrialScheduler

from sweeps.plan.plan import Plan
from sweeps.search.schedulers.build_scheduler import build_scheduler
from sweeps.search.schedulers.decisions import DecisionLog


def plan_scheduler(
    plan: Plan, decisions: DecisionLog, remaining_s: Callable[[], float] = lambda: math.inf
) -> TrialScheduler:
    """Build a plan's scheduler in its state after recorded decisions, for schedulers that copy no trials.

    Args:
        plan: The sweep's plan.
        decisions: Decisions of before, and where it records its own.
        remaining_s: Returns the seconds that are left of the sweep's budgets.
    """
    search = plan.config.search
    scheduler = build_scheduler(
        plan.composition,
        plan.space,
        lookup=plan.points.lookup,
        validate=plan.check_point,
        trials=plan.folder,
        exploited=lambda exploit: None,
        decisions=decisions,
        num_trials=lambda: search.num_trials,
        remaining_s=remaining_s,
    )
    scheduler.set_search_properties(search.metrics[0], search.modes[0])
    return scheduler
