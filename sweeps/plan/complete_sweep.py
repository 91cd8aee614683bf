"""Detects a sweep that is complete, and explains how to extend it."""

from __future__ import annotations

import re
from pathlib import Path

from sweeps.constants import TAG_ENDED, TAG_SWEEP
from sweeps.plan.plan import Plan
from sweeps.search.confirmation_race import MIN_RUNS
from sweeps.texts.wording import counted, counted_states
from sweeps.tracking.fold import Fold
from sweeps.tracking.journal import entries_without_points, is_delivered
from sweeps.tracking.reader import record_of
from sweeps.tracking.record import INTERRUPTED, SweepRecord
from sweeps.tracking.store import RawRun

ALL_STARTED = re.compile(r"[\d,]+ trials? (was|were) started")
STARTS_MORE = re.compile(rf"{ALL_STARTED.pattern}|none of [\d,]+ random points")
"""Reasons for which a search ended and `resume` starts further trials, up to the planned number."""
BUDGET = re.compile(r"(search\.stop\.[a-z_.]+)=(\S+) is used up")
WIDER = "space.PATH.high=VALUE"
"""Change for a sweep that has tried every point of its space; the user replaces PATH and VALUE."""
RULE = re.compile(r"search\.stop\.[a-z_]+")


def is_complete(record: SweepRecord, plan: Plan) -> bool:
    """Whether nothing is left to resume: the search has ended normally, and MLflow has received everything."""
    if record.status not in ("finished", "failed") or record.counts["running"]:
        return False
    return _all_started(record, plan) and is_delivered(plan.folder)  # last, since it reads the whole journal


def _all_started(record: SweepRecord, plan: Plan) -> bool:
    """Whether the search starts no further trials."""
    ended = record.tags.get(TAG_ENDED, "")
    if record.status != "failed" and ended and STARTS_MORE.match(ended) is None:
        # A rule of search.stop, or every point of the space was tried. Earlier releases recorded the config's number.
        return record.planned in (None, plan.num_trials, plan.config.search.num_trials)
    return len(record.trials) >= plan.num_trials


def may_train(record: SweepRecord, plan: Plan) -> bool:
    """Whether trials or repeats may be left to train, by a record; otherwise `resume` only completes the record."""
    if any(
        each.state in ("running", "stopped", INTERRUPTED) and not each.stopped_for_good for each in record.all_trials
    ):
        return True
    if not _all_started(record, plan):
        return True
    has_winner = record.confirmation is not None and record.confirmation.winner is not None
    candidates = sum(each.value is not None and each.may_be_best for each in record.trials)
    return bool(plan.config.search.confirm) and not has_winner and candidates >= MIN_RUNS


def with_undelivered(record: SweepRecord, folder: Path) -> SweepRecord:
    """Return a record with all that the journal in the sweep's folder has."""
    parent = RawRun(
        run_id=record.mlflow.run_id,
        experiment_id=record.mlflow.experiment_id,
        experiment=record.experiment,
        status="KILLED",
        started=int(1000 * record.started),
        ended=None,
        tags={TAG_SWEEP: record.sweep, **record.tags},
        params={},
    )
    fold = Fold(parent, {})
    for entry in entries_without_points(folder):
        fold.take(entry)
    return record_of(record.mlflow.tracking_uri, fold.parent, fold.trials.values())


def describe_completion(record: SweepRecord, plan: Plan) -> str:
    """Describe why nothing is left to resume, with a command that extends the sweep."""
    planned = plan.num_trials
    ended = record.tags.get(TAG_ENDED, "")
    by_rule = bool(ended) and ALL_STARTED.match(ended) is None
    why = f" ({ended})" if by_rule else ""
    change, effect = extension(ended, planned, plan.points.num_points)
    fixed = (
        f"if the error is fixed, `python -m sweeps extend {record.sweep} search.max_retries="
        f"{plan.config.search.max_retries + 1}` tries the failed trials again, unless they diverged; "
    )
    return (
        f"{record.sweep} has {record.status}: {counted_states(record.counts)} of {counted(planned, 'trial')}{why}. "
        f"Nothing is left to resume.\n{fixed if record.counts['failed'] else ''}"
        f"`python -m sweeps extend {record.sweep} {change}` {effect}"
    )


def extension(ended: str, planned: int, points: int | None) -> tuple[str, str]:
    """Return an override with which ``extend`` continues a sweep that has ended for a reason (empty if unknown), and
    its effect; ``points`` counts those of a small space or grid, and is None for any other space."""
    if (budget := BUDGET.match(ended)) is not None:
        return f"{budget[1]}={2 * float(budget[2]):g}", "doubles the budget and continues"
    if (rule := RULE.search(ended)) is not None:
        return f"{rule[0]}=null", f"removes this rule and continues, up to {counted(planned, 'trial')}"
    if (ended and ALL_STARTED.match(ended) is None) or (points is not None and planned >= points):
        return WIDER, "widens a range, or choices by space.PATH.choices=[...], so that there are further points"
    number = 2 * planned if points is None else min(2 * planned, points)
    return f"search.num_trials={number}", f"starts {counted(number - planned, 'more trial')}"
