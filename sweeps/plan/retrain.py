"""Trains a recorded trial anew: to its end, or with other data and steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweeps.plan.export import lineage, new_name, plan_alone
from sweeps.plan.plan import Plan
from sweeps.tracking.record import SweepRecord, TrialRecord


def plan_retraining(
    record: SweepRecord,
    trial: TrialRecord,
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
    name: str | None,
    command: str,
) -> Plan:
    """The plan of a sweep of one trial, which says in its tags whom it repeats; see ``plan_alone``.

    Raises:
        UserError: For every mistake that can be seen from here.
    """
    name = new_name(record, trial, "retrain") if name is None else name
    return plan_alone(record, trial, tokens, config_dirs, name, command, lineage(record, trial, "retrain"))
