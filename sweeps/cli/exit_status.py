"""Exit statuses of the verbs. Errors that are a ``SweepsError`` have their own (``SweepsError.exit_status``)."""

from __future__ import annotations

from contextvars import ContextVar

NO_SUCCESS = 1
"""Nothing was wrong with the request, but no trial succeeded, or a check failed."""
MISTAKE = 2
"""The request is wrong; nothing was started."""
TRY_AGAIN = 75
"""A background process got no answer from MLflow, or could not start Ray; a repetition may succeed: EX_TEMPFAIL."""
INTERRUPTED = 130
"""Ctrl-C or SIGTERM."""
EXIT_STATUS = {"interrupted": INTERRUPTED, "failed": NO_SUCCESS}
"""Exit status by the final status of a sweep; 0 for others."""

_status = ContextVar("exit_status", default=0)


def exits_with(status: int) -> None:
    """Set the exit status of this command. A verb sets it before it prints its result: a reader that ends before the
    output does, such as ``| head``, ends the command."""
    _status.set(status)


def exit_status() -> int:
    """Return the exit status of this command."""
    return _status.get()
