"""Scheduler of a plan, without workers."""

from __future__ import annotations

import math
from collections.abc import Callable

from sweeps.plan.plan import Plan
from sweeps.search.schedulers.build_scheduler import build_scheduler
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.scheduler import Scheduler


def plan_scheduler(
    plan: Plan, decisions: DecisionLog, remaining_s: Callable[[], float] = lambda: math.inf
) -> Scheduler:
    """Build a plan's scheduler in its state after recorded decisions, for schedulers that copy no trials.

    Args:
        plan: The sweep's plan.
        decisions: Decisions of before, and where it records its own.
        remaining_s: Returns the seconds that are left of the sweep's budgets.
    """
    search = plan.config.search
    return build_scheduler(
        plan.composition,
        plan.space,
        lookup=plan.points.lookup,
        validate=plan.check_point,
        decisions=decisions,
        num_trials=lambda: search.num_trials,
        remaining_s=remaining_s,
    )
