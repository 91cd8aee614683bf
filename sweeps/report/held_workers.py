"""Time for which trials held their workers, without the time in which they were paused or waited."""

from __future__ import annotations

import re

from sweeps.constants import TAG_LANES
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.trial_history import Span, may_be_cut


def held_s(record: SweepRecord, trial: TrialRecord) -> float | None:
    """Seconds for which a trial held its workers; for older records, from its start to its end. None if unknown."""
    if not trial.spans:
        return record.took(trial)
    return _periods(trial) * sum(span_end(record, trial, span) - span.held for span in trial.spans)


def worker_hours(record: SweepRecord, trial: TrialRecord) -> float:
    """Worker-hours of a trial: the hours for which it held workers, summed over the workers. A worker with several GPUs
    (``host/0,1``) counts as that many."""
    held = sum(
        (span_end(record, trial, span) - span.held) * sum(1 + worker.count(",") for worker in span.workers)
        for span in trial.spans
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


def span_end(record: SweepRecord, trial: TrialRecord, span: Span) -> float:
    """Unix time at which a trial's period with its workers ended. If the workers died before they reported it: the time
    when the attempt failed, the trial ended or got new workers, or the driver's last sign of life, whichever is
    first."""
    sessions = [ended for began, ended in record.time.sessions if began <= span.held <= ended]
    if span.ended is not None or not sessions:
        return span.ended or span.trained
    later = [*(each.ended for each in trial.failures), *(each.held for each in trial.spans), trial.ended]
    return max(span.trained, min([*sessions, *(each for each in later if each is not None and each > span.held)]))
