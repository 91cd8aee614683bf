"""Why a worker group has ended, in a line, where no worker has said so itself: Ray's own errors."""

from __future__ import annotations

TRACEBACK = "Traceback (most recent call last):"


def reason(exception: BaseException) -> str:
    """The first worker's error, without Ray's wrapping."""
    failures = getattr(exception, "worker_failures", None)
    return _said(next(iter(failures.values())) if failures else exception)


def _said(exception: BaseException) -> str:
    """In its first line, since libraries go on with advice and links; of an error that quotes a traceback, the last."""
    cause = getattr(exception, "cause", None)
    exception = cause if isinstance(cause, BaseException) else exception
    text, name = str(exception).strip(), type(exception).__name__
    if not text:
        return name
    lines = text.splitlines()
    line = lines[-1 if TRACEBACK in text else 0].strip()
    return line if line.startswith(name) or ": " in line else f"{name}: {line}"
