"""Earlier sweeps of a config in its tracking store, from which the cost of a planned one is estimated."""

from __future__ import annotations

from sweeps.errors import UserError
from sweeps.plan.plan import Plan
from sweeps.report.expected_cost import ExpectedCost, PastSweep, cost_in_words, expected_cost, past_of, workload_of
from sweeps.tracking.reader import list_sweeps, load_sweep

MOST = 3
"""Maximum number of earlier sweeps, the newest ones."""
USED = ("finished", "stopped")
"""Statuses of sweeps whose trials show how long others will take."""


def cost_by_earlier_sweeps(plan: Plan) -> tuple[ExpectedCost | None, str]:
    """Estimate what a planned sweep costs.

    Args:
        plan: The sweep.

    Returns:
        The estimate, and it in words; without one, the words say what is missing.
    """
    conf, uri = plan.composition.conf, plan.config.tracking.uri
    try:
        names = [each.sweep for each in list_sweeps(uri) if each.conf == conf and each.status in USED]
        past: list[PastSweep] = []
        for name in names:
            found = past_of(load_sweep(uri, name))
            past += [found] if found is not None else []
            if len(past) == MOST:
                break
    except UserError as error:
        return None, f"not known: {error}"
    expected = expected_cost(workload_of(plan), past)
    return expected, cost_in_words(plan, expected)
