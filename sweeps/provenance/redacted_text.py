"""Hides secrets in long text such as logs and tracebacks. A quick search skips lines without secrets, which are most of
them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sweeps.provenance.redaction import HIDDEN, KEY_BLOCK, redacted, redacted_source, without_variables
from sweeps.worker_error import WorkerError

_MAY_HOLD_SECRETS = re.compile(
    r"://|passw|secret|token|key|credential|hf_|sk-|gh[pousr]_|github_pat|glpat-|sweeps_|AKIA|xox|eyJ|-----BEGIN",
    re.IGNORECASE,
)


def redacted_log(text: str) -> str:
    """Return a program's output with secrets hidden, including those in ``password=...``."""
    return _by_lines(text, redacted)


def redacted_traceback(text: str) -> str:
    """Return a traceback with secrets hidden, but without hiding source code such as ``token=tokenizer.pad``."""
    return _by_lines(text, redacted_source)


def redacted_error(error: WorkerError) -> WorkerError:
    """Return a worker's error with secrets hidden."""
    frame = error.frame and replace(error.frame, source=redacted_traceback(error.frame.source))
    message, traceback = redacted_traceback(error.message), redacted_traceback(error.traceback)
    return replace(error, message=message, traceback=traceback, frame=frame)


def _by_lines(text: str, hide: Callable[[str], str]) -> str:
    lines = KEY_BLOCK.sub(HIDDEN, without_variables(text)).splitlines(keepends=True)  # a key takes many lines
    return "".join(hide(line) if _MAY_HOLD_SECRETS.search(line) else line for line in lines)
