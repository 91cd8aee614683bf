"""Requests to the driver of a running sweep to end the sweep, or one of its trials."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from sweeps.constants import TAG_FOLDER, TAG_HEARTBEAT, TAG_STATE
from sweeps.errors import SweepsError, UserError
from sweeps.folders.driver_lock import driver_was_killed
from sweeps.tracking.control_channel import send_request
from sweeps.tracking.reader import CLOCKS_DIFFER_S, load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.stored_record import local_store
from sweeps.tracking.values import number

ENDED_WITHIN_S = 90.0
"""Maximum seconds to wait until a driver has recorded that it has ended; MLflow may be slow."""


def stop(record: SweepRecord, trial: str | None = None) -> SweepRecord:
    """Stop a running sweep, or one of its trials, and wait until it has ended.

    Args:
        record: The sweep's record.
        trial: Number of the trial, as ``0003`` or ``3``; default: the whole sweep.

    Returns:
        The sweep's record afterwards.

    Raises:
        UserError: The sweep is not running, there is no such trial, or the driver does not answer.
        SweepsError: It was asked to end, and has not ended after minutes.
    """
    request_stop(record, trial)

    from sweeps.plan.saved_sweep import saved_config  # takes long to import; the driver acts meanwhile

    within_s = ENDED_WITHIN_S
    with contextlib.suppress(SweepsError):  # its folder is on another machine
        within_s += saved_config(record.sweep, record.tags.get(TAG_FOLDER, "")).ends_within_s

    def load() -> SweepRecord:  # a record in an object store is copied anew each time
        return load_sweep(local_store(record.mlflow.tracking_uri), record.sweep)

    return wait_for_end(load, trial, within_s=within_s)


def request_stop(record: SweepRecord, trial: str | None = None) -> None:
    """Ask a sweep's driver to end the sweep or one of its trials, without waiting for the end; see ``stop``.

    Raises:
        UserError: See ``stop``.
    """
    send_request(record, {"verb": "stop", "trial": check_can_stop(record, trial)})


def check_can_stop(record: SweepRecord, trial: str | None = None) -> str | None:
    """Check that a sweep, and one of its trials if given, is running; return the trial's recorded number.

    Raises:
        UserError: The sweep or the trial is not running.
    """
    if not _has_no_end(record):
        raise UserError(f"{record.sweep} is not running: it is {record.status}{_hint(record.status, record.sweep)}")
    if _was_killed(record):
        raise UserError(
            f"{record.sweep} is not running: its driver was killed; its last heartbeat was {_silent_s(record):.0f} s "
            f"ago{_hint('interrupted', record.sweep)}"
        )
    if trial is None:
        return None
    chosen = _chosen(record, trial)
    if chosen.state != "running":
        raise UserError(f"trial {chosen.trial} of {record.sweep} is not running: it is {chosen.state}")
    return chosen.trial


def wait_for_end(
    load: Callable[[], SweepRecord], trial: str | None, *, within_s: float, every_s: float = 0.3
) -> SweepRecord:
    """Wait until a sweep, or one of its trials, has ended.

    Args:
        trial: Number of the trial, as ``0003`` or ``3``; None: the whole sweep.

    Returns:
        The sweep's record afterwards.

    Raises:
        SweepsError: The sweep or the trial did not end in time.
    """
    deadline, ran = time.monotonic() + within_s, False
    while True:
        record = load()
        if ran and record.status == "interrupted":  # its driver has died meanwhile
            return record
        ran = record.status == "running"
        chosen = None if trial is None else _chosen(record, trial)
        if not _has_no_end(record) or (chosen is not None and chosen.state != "running"):
            return record
        if _was_killed(record):
            return replace(record, status="interrupted")
        if time.monotonic() > deadline:
            what = record.sweep if chosen is None else f"trial {chosen.trial} of {record.sweep}"
            raise SweepsError(
                f"{what} did not stop within {within_s:.0f} s; it was asked to, and trials end at their next report; "
                f"see `python -m sweeps show {record.sweep}`"
            )
        time.sleep(every_s)


def _has_no_end(record: SweepRecord) -> bool:
    """Whether a sweep's end is not recorded. Its driver may run on a machine with another clock, by which its heartbeat
    is not as old as it seems."""
    may_run = record.tags.get(TAG_STATE) == "running" and _silent_s(record) < CLOCKS_DIFFER_S
    return record.status == "running" or may_run


def _silent_s(record: SweepRecord) -> float:
    """Return the seconds since a driver's last heartbeat."""
    return time.time() - (number(record.tags.get(TAG_HEARTBEAT)) or record.started)


def _was_killed(record: SweepRecord) -> bool:
    """Whether a sweep's driver was killed on this machine."""
    return driver_was_killed(Path(record.tags.get(TAG_FOLDER, "")))


def _chosen(record: SweepRecord, trial: str) -> TrialRecord:
    from sweeps.plan.export import choose  # takes long to import, and to stop a whole sweep does not need it

    return choose(record, trial)


def _hint(status: str, sweep: str) -> str:
    return "" if status == "finished" else f"; `python -m sweeps resume {sweep}` continues it"
