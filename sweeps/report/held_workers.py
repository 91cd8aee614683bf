"""Time for which trials held their workers, without the time in which they were paused or waited."""

from __future__ import annotations

from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.spans import Span


def held_s(record: SweepRecord, trial: TrialRecord) -> float | None:
    """Seconds for which a trial held its workers; for older records, from its start to its end. None if unknown.

    Of a trial that was paused often only the latest periods are recorded; the others count as long as these.
    """
    if not trial.spans:
        return record.took(trial)
    recorded = sum(span_end(record, trial, span) - span.held for span in trial.spans)
    return recorded * max(1.0, trial.attempts / len(trial.spans))


def worker_hours(record: SweepRecord, trial: TrialRecord) -> float:
    """Hours that a trial held workers, summed over the workers."""
    return sum((span_end(record, trial, span) - span.held) * len(span.workers) for span in trial.spans) / 3600


def span_end(record: SweepRecord, trial: TrialRecord, span: Span) -> float:
    """Unix time at which workers finished a trial. Where none was left to report it: when the attempt failed, the trial
    ended or got its next workers, or else at the last sign of life of the driver."""
    sessions = [ended for began, ended in record.time.sessions if began <= span.held <= ended]
    if span.ended is not None or not sessions:
        return span.ended or span.trained
    later = [*(each.ended for each in trial.failures), *(each.held for each in trial.spans), trial.ended]
    return max(span.trained, min([*sessions, *(each for each in later if each is not None and each > span.held)]))
