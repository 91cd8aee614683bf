"""One-line summaries of Ray's own errors, for worker groups that ended although no worker reported an error."""

from __future__ import annotations

TRACEBACK = "Traceback (most recent call last):"


def summarize_error(exception: BaseException) -> str:
    """Summarize an error in one line, without Ray's wrapping, advice and links: the first line of the first worker's
    error, or the last line of a traceback that the error quotes."""
    failures = getattr(exception, "worker_failures", None)
    exception = next(iter(failures.values())) if failures else exception
    cause = getattr(exception, "cause", None)
    exception = cause if isinstance(cause, BaseException) else exception
    text, name = str(exception).strip(), type(exception).__name__
    if not text:
        return name
    lines = text.splitlines()
    line = lines[-1 if TRACEBACK in text else 0].strip()
    return line if line.startswith(name) or ": " in line else f"{name}: {line}"
