"""Plan that trains a recorded trial again: to its full length, or with other data and steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweeps.plan.export import plan_alone, repeat_tags
from sweeps.plan.plan import Plan
from sweeps.plan.sweep_name import repeat_name
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.validate.config_checks import Approve


def plan_retraining(
    record: SweepRecord,
    trial: TrialRecord,
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
    name: str | None,
    command: str,
    approve: Approve | None = None,
) -> Plan:
    """Make the plan of a sweep of one trial, whose tags name the repeated trial; see ``plan_alone``.

    Raises:
        UserError: For every mistake that can be seen from here.
    """
    name = repeat_name(record, trial, "retrain") if name is None else name
    return plan_alone(record, trial, tokens, config_dirs, name, command, repeat_tags(record, trial, "retrain"), approve)
