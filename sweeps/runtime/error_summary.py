"""One-line summaries of Ray's own errors, for worker groups that ended without an error of a worker."""

from __future__ import annotations

TRACEBACK = "Traceback (most recent call last):"


def summarize_error(exception: BaseException) -> str:
    """The first worker's error, without Ray's wrapping."""
    failures = getattr(exception, "worker_failures", None)
    return _summary(next(iter(failures.values())) if failures else exception)


def _summary(exception: BaseException) -> str:
    """First line of an error, which advice and links may follow; the last line of an error that quotes a traceback."""
    cause = getattr(exception, "cause", None)
    exception = cause if isinstance(cause, BaseException) else exception
    text, name = str(exception).strip(), type(exception).__name__
    if not text:
        return name
    lines = text.splitlines()
    line = lines[-1 if TRACEBACK in text else 0].strip()
    return line if line.startswith(name) or ": " in line else f"{name}: {line}"
