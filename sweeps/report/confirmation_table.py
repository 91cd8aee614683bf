"""Repeats of the best trials with other seeds, as a table."""

from __future__ import annotations

from sweeps.tracking.confirmation_record import Confirmation, Contender
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.values import short

COLUMNS = ("trial", "in the search", "mean of repeats", "interval", "repeats", "result")


def confirmation_rows(record: SweepRecord) -> list[list[str]]:
    """Row of strings for each compared trial, in the order of ``COLUMNS``."""
    if record.confirmation is None:
        return []
    by_id = {trial.trial: trial for trial in record.trials}
    rows = []
    for each in record.confirmation.contenders:
        value = by_id[each.trial].value if each.trial in by_id else None
        repeats = [trial for trial in record.repeats if trial.repeat_of == each.trial]
        rows.append(
            [
                each.trial,
                "" if value is None else short(value),
                "" if each.mean is None else short(each.mean),
                "" if each.low is None or each.high is None else f"{short(each.low)} to {short(each.high)}",
                " ".join(trial.state if trial.value is None else short(trial.value) for trial in repeats),
                _result(record.confirmation, each),
            ]
        )
    return rows


def _result(confirmation: Confirmation, contender: Contender) -> str:
    if contender.failed is not None:
        return contender.failed
    if contender.lost_to is not None:
        return f"worse than {contender.lost_to}"
    if confirmation.winner is None:
        return ""
    if contender.trial == confirmation.winner:
        return "best mean" if confirmation.tied else "wins"
    return "may be as good"
