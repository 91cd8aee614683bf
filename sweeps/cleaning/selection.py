"""Selects the trials to remove. Uses neither MLflow nor files, so that tests can try thousands of cases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sweeps.cleaning.policy import Policy
from sweeps.config.objectives import as_loss
from sweeps.constants import TAG_HEARTBEAT
from sweeps.tracking.reader import ENDED, recorded_best
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.values import finite, number

RESUMABLE = ("interrupted", "stopped")


@dataclass(frozen=True)
class Removal:
    """A trial whose checkpoints are removed, and its run if the policy includes runs."""

    record: SweepRecord
    trial: TrialRecord
    size: int
    """Bytes of the trial's checkpoints."""


def select(
    records: Sequence[SweepRecord],
    sizes: Mapping[str, int],
    needed: Collection[str],
    policy: Policy,
    names: Collection[str],
    now: float,
) -> list[Removal]:
    """Return the removals of a policy, oldest sweeps first.

    Args:
        records: All sweeps of the store.
        sizes: Bytes of the checkpoints by run; a run without checkpoints is not in it.
        needed: Runs that registered models come from, or that other sweeps repeat.
        policy: The policy.
        names: Names of sweeps; empty for all.
        now: Unix time.
    """
    removals = [
        Removal(record, trial, sizes.get(trial.run_id, 0))
        for record in candidates(records, policy, names, now)
        for trial in _worst_first(record, policy.keep_best)
        if trial.run_id not in needed
        and (policy.runs or trial.run_id in sizes)
        and (policy.unfinished or not _can_continue(trial))
    ]
    return removals if policy.max_size is None else _enough(removals, sum(sizes.values()) - policy.max_size)


def candidates(records: Sequence[SweepRecord], policy: Policy, names: Collection[str], now: float) -> list[SweepRecord]:
    """Return the sweeps of which a policy may remove trials, the oldest first; for the arguments see ``select``."""
    newest = sorted(records, key=lambda record: record.started, reverse=True)
    kept_sweeps = {record.sweep for record in newest[: policy.keep_last]}
    statuses = (*ENDED, *(RESUMABLE if policy.unfinished else ()))
    return [
        record
        for record in sorted(records, key=ended_at)
        if record.status in statuses
        and record.sweep not in kept_sweeps
        and (not names or record.sweep in names)
        and (policy.older_than_s is None or now - ended_at(record) > policy.older_than_s)
    ]


def ended_at(record: SweepRecord) -> float:
    """Return the Unix time of a sweep's last recorded activity."""
    ends = [trial.ended for trial in record.all_trials if trial.ended is not None]
    return max([record.started, number(record.tags.get(TAG_HEARTBEAT)) or 0.0, *ends])


def best_trials(record: SweepRecord, count: int) -> list[TrialRecord]:
    """Return the recorded best trial or Pareto front, followed by the ``count`` trials with the best values. While no
    trial of the search itself has a value, those of the latest stage count."""
    staged = _with_values(record.staged)
    latest = max((trial.stage or 0 for trial in staged), default=0)
    valued = _with_values(record.trials) or [trial for trial in staged if trial.stage == latest]
    ranked = [*reversed(_by_goodness(valued, record.mode))]
    valid = [trial for trial in ranked if trial.may_be_best]
    # If no trial is valid, the best of the others are kept.
    return [*record.front, *(valid or ranked)[: max(1, count)]]


def _worst_first(record: SweepRecord, keep_best: int) -> list[TrialRecord]:
    # A restored store may have lost the values of the best ones.
    kept = {*recorded_best(record.tags), *(trial.trial for trial in best_trials(record, keep_best))}
    worst_first = [*record.staged, *record.repeats, *_by_goodness(record.trials, record.mode)]
    return [trial for trial in worst_first if trial.trial not in kept and trial.state != "running"]


def _can_continue(trial: TrialRecord) -> bool:
    """Whether a trial continues if its sweep is extended by a larger budget."""
    return trial.state == "stopped" and not trial.stopped_for_good


def _with_values(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [trial for trial in trials if finite(trial.value) is not None]


def _by_goodness(trials: Sequence[TrialRecord], mode: str) -> list[TrialRecord]:
    """Return the trials without a value first, then the others from worst to best."""

    def goodness(trial: TrialRecord) -> tuple[bool, float]:
        value = finite(trial.value)
        return value is not None, -as_loss(value or 0.0, mode)

    return sorted(trials, key=goodness)


def _enough(removals: Sequence[Removal], excess: int) -> list[Removal]:
    chosen = []
    for removal in removals:
        if excess <= 0:
            break
        chosen.append(removal)
        excess -= removal.size
    return chosen
