"""Long text of unknown origin, such as logs and tracebacks, with its secrets hidden, in time linear in its length."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from sweeps.origin.secrets import redacted, redacted_source
from sweeps.worker_error import WorkerError

PIECE = 500
"""Characters of a line that are looked at together: no longer secret is found, and no pattern takes long."""
_MAY_HOLD_SECRETS = re.compile(
    r"://|passw|secret|token|key|credential|hf_|sk-|gh[pousr]_|github_pat|glpat-|sweeps_|AKIA|xox|eyJ|-----BEGIN",
    re.IGNORECASE,
)


def redacted_log(text: str) -> str:
    """What a program has printed, with secrets hidden: ``password=...`` too."""
    return _by_pieces(text, redacted)


def redacted_traceback(text: str) -> str:
    """A traceback with secrets hidden; its source code stays: ``token=tokenizer.pad`` is none."""
    return _by_pieces(text, redacted_source)


def redacted_error(error: WorkerError) -> WorkerError:
    """A worker's error with secrets hidden."""
    frame = error.frame and replace(error.frame, source=redacted_traceback(error.frame.source))
    message, traceback = redacted_traceback(error.message), redacted_traceback(error.traceback)
    return replace(error, message=message, traceback=traceback, frame=frame)


def _by_pieces(text: str, hide: Callable[[str], str]) -> str:
    pieces = (
        line[start : start + PIECE] for line in text.splitlines(keepends=True) for start in range(0, len(line), PIECE)
    )
    return "".join(hide(piece) if _MAY_HOLD_SECRETS.search(piece) else piece for piece in pieces)
