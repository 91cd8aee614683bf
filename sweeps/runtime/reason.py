"""Why a training has ended, in a line that a person can act on."""

from __future__ import annotations

import re
import sysconfig
from importlib.util import find_spec
from pathlib import Path

TRACEBACK = "Traceback (most recent call last):"
_LIBRARIES = tuple(
    str(Path(spec.origin).parent) for name in ("sweeps", "sweeps_train") if (spec := find_spec(name)) and spec.origin
)
"""Folders of our own packages."""


def reason(exception: BaseException) -> str:
    """The first worker's own error, without Ray's wrapping, and where in a user's code it was."""
    failures = getattr(exception, "worker_failures", None)
    if not failures:
        return _said(exception)
    rank, failure = next(iter(failures.items()))
    # Ray gives the errors without their tracebacks, which are in its message, one worker's after another's.
    snippet = str(exception).partition(f"[Rank {rank} ")[2].partition("\n[Rank ")[0]
    frames = re.findall(r'^  File "(.+)", line (\d+)', snippet.rpartition(TRACEBACK)[2], re.MULTILINE)
    places = [f"{file}:{line}" for file, line in frames if _is_users(file)]
    return f"{_said(failure)} ({places[-1]})" if places else _said(failure)


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


def _is_users(file: str) -> bool:
    if file.startswith("<") or "site-packages" in file:
        return False
    return not file.startswith((*_LIBRARIES, sysconfig.get_path("stdlib")))
