"""One trial in full: parameters, values, attempts, checkpoints, and the end of its logs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from sweeps.report.formatting import duration
from sweeps.report.plain_console import print_facts, print_lines
from sweeps.texts.wording import counted
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.time_account import TimeAccount, describe_rest
from sweeps.tracking.trial_logs import TrialLogs
from sweeps.tracking.values import short

END_LINES = 20
"""Number of lines from the end of each worker's log."""
END_OF_WORKERS = 8
"""Maximum number of workers whose logs are shown."""


def trial_document(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    """Document of ``show --trial --json``, with the end of the trial's logs."""
    logs = TrialLogs(record, trial)
    workers = logs.workers()
    return {
        "sweep": record.sweep,
        **trial.as_json(),
        "metric": list(record.metrics),
        "started": trial.started,
        "ended": trial.ended,
        "took_s": record.took(trial),
        "error": trial.error,
        "violation": trial.violation,
        "pool": trial.pool,
        "checkpoints": trial.checkpoints,
        "weights": {kind: f"of {weights.describe(record.metrics)}" for kind, weights in trial.weights.items()},
        "failed_attempts": [
            {"attempt": each.attempt, "ended": each.ended, "error": each.error}
            for each in trial.failures
            if not each.moved
        ],
        "moves": [{"ended": each.ended, "reason": each.error} for each in trial.failures if each.moved],
        "notes": [asdict(each) for each in trial.notes],
        "spans": [asdict(each) | {"workers": list(each.workers)} for each in trial.spans],
        "time_account": None if trial.account is None else trial.account.as_json(),
        "traceback": logs.traceback(),
        "logs": {str(worker): logs.last_lines(worker, END_LINES) for worker in workers[:END_OF_WORKERS]},
        "workers": workers,
    }


def _special(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield rows that explain why a trial is not part of the search itself: it is a repeat, or from an earlier
    stage."""
    if "repeat_of" in document:
        yield "repeats", f"trial {document['repeat_of']}, with another seed"
    if "stage" in document:
        yield "stage", f"{document['stage']}, before the search"


def _checkpoints(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows about a trial's checkpoints."""
    for which, uri in document["checkpoints"].items():
        yield f"{which} checkpoint", uri
        if which in document.get("weights", {}):
            yield "its weights", document["weights"][which]
    if not document["checkpoints"]:
        yield "checkpoint", "none"


def print_trial(document: Mapping[str, Any], console: Console, *, debug: bool = False) -> None:
    """Print the document of ``trial_document``; with ``debug``, the whole traceback."""
    print_facts(_facts(document), console)
    if document.get("why"):
        _section(console, "why")
        print_lines(console, *document["why"])
    _print_failures(document, console)
    if document["traceback"] and debug:
        _section(console, "traceback of the last attempt that failed")
        console.out(document["traceback"].rstrip(), highlight=False)
    for worker, lines in document["logs"].items():
        _section(console, f"end of the log of worker {worker}")
        console.out("\n".join(lines), highlight=False)
    console.print()
    also = "" if debug or not document["traceback"] else "; --debug shows the whole traceback"
    print_lines(console, f"whole log  python -m sweeps logs {document['sweep']} --trial {document['trial']}{also}")


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a trial's facts with their labels."""
    steps = f"{document['state']} after {counted(document['steps'], 'step')}"
    yield "trial", f"{document['trial']} of {document['sweep']}: {steps}"
    yield from _special(document)
    values = document["value"] if isinstance(document["value"], list) else [document["value"]]
    for metric, value in zip(document["metric"], values, strict=False):
        yield metric, "" if value is None else f"{value:.6g}"
    for path, value in document["params"].items():
        yield path, short(value)
    if document["pool"]:
        yield "pool", document["pool"]
    if document["violation"]:
        yield "out of bounds", document["violation"]
    yield from _checkpoints(document)
    yield "MLflow run", document["run_id"]
    yield from _times(document)


def _times(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if document["started"] is not None:
        took = document.get("took_s")  # a service of an earlier release does not send it
        yield "started", _moment(document["started"]) + ("" if took is None else f", took {duration(took)}")
    if document["time_account"] is not None:
        account = TimeAccount.from_json(document["time_account"])
        yield "goodput", f"{account.goodput:.0%}; the rest: {describe_rest(account) or 'nothing'}"
    for span in document["spans"]:
        end = f" to {_moment(span['ended'])}" if span["ended"] else ""
        number = len(span["workers"])
        where = f"{counted(number, 'worker')}: {', '.join(span['workers'])}" if number else "unknown nodes"
        yield "trained", f"{_moment(span['trained'])}{end} on {where}"


def _print_failures(document: Mapping[str, Any], console: Console) -> None:
    print_lines(console, *(f"{_moment(each['at'])}: {each['text']}" for each in document["notes"]))
    for each in document["moves"]:
        moved = f"continued on other workers at {_moment(each['ended'])}, without having failed"
        print_lines(console, f"{moved}: {each['reason']}")
    for each in document["failed_attempts"]:
        print_lines(console, f"attempt {each['attempt']} failed at {_moment(each['ended'])}: {each['error']}")
    if document["error"] and not document["failed_attempts"]:
        print_lines(console, f"failed: {document['error']}")


def _section(console: Console, title: str) -> None:
    console.print()
    console.print(f"--- {title} ---", style="dim", markup=False, highlight=False)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
