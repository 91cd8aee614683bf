"""Time for which trials held their workers, without the time in which they were paused or waited."""

from __future__ import annotations

import re

from sweeps.constants import TAG_LANES
from sweeps.tracking.record import SweepRecord, TrialRecord, ended_spans
from sweeps.tracking.trial_history import may_be_cut


def held_s(record: SweepRecord, trial: TrialRecord) -> float | None:
    """Seconds for which a trial held its workers; for older records, from its start to its end. None if unknown."""
    if not trial.spans:
        return record.took(trial)
    return _periods(trial) * sum(ended - span.held for span, ended in ended_spans(record, trial))


def worker_hours(record: SweepRecord, trial: TrialRecord) -> float:
    """Worker-hours of a trial: the hours for which it held workers, summed over the workers. A worker with several GPUs
    (``host/0,1``) counts as that many."""
    held = sum(
        (ended - span.held) * sum(1 + worker.count(",") for worker in span.workers)
        for span, ended in ended_spans(record, trial)
    )
    return _periods(trial) * held / 3600


def lanes_found(record: SweepRecord) -> int:
    """Return the number of trials that one worker group trains at a time, if it was measured; otherwise 1."""
    found = re.match(r"\d+", record.tags.get(TAG_LANES, ""))
    return int(found[0]) if found else 1


def _periods(trial: TrialRecord) -> float:
    """Number of periods in which a trial held workers, divided by the number of recorded ones. Only the latest periods
    of a trial that was paused often are recorded; earlier ones are assumed to be as long on average."""
    return max(1.0, trial.attempts / len(trial.spans)) if may_be_cut(trial.spans) else 1.0
