"""Long text of unknown origin, such as logs and tracebacks, with its secrets hidden: most of its lines have none, which
is seen at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sweeps.provenance.secrets import HIDDEN, KEY_BLOCK, redacted, redacted_source
from sweeps.worker_error import WorkerError

_MAY_HOLD_SECRETS = re.compile(
    r"://|passw|secret|token|key|credential|hf_|sk-|gh[pousr]_|github_pat|glpat-|sweeps_|AKIA|xox|eyJ|-----BEGIN",
    re.IGNORECASE,
)


def redacted_log(text: str) -> str:
    """Output of a program with secrets hidden: ``password=...`` too."""
    return _by_lines(text, redacted)


def redacted_traceback(text: str) -> str:
    """A traceback with secrets hidden; its source code stays: ``token=tokenizer.pad`` is none."""
    return _by_lines(text, redacted_source)


def redacted_error(error: WorkerError) -> WorkerError:
    """A worker's error with secrets hidden."""
    frame = error.frame and replace(error.frame, source=redacted_traceback(error.frame.source))
    message, traceback = redacted_traceback(error.message), redacted_traceback(error.traceback)
    return replace(error, message=message, traceback=traceback, frame=frame)


def _by_lines(text: str, hide: Callable[[str], str]) -> str:
    lines = KEY_BLOCK.sub(HIDDEN, text).splitlines(keepends=True)  # a key has many lines
    return "".join(hide(line) if _MAY_HOLD_SECRETS.search(line) else line for line in lines)
