"""The cause of a program's failure, found in its last lines of output.

Launchers such as ``torchrun`` end with a traceback and a summary of their own, which do not say why the program failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SHOWN_LINES = 20
"""Maximum lines of output in an error."""
TRACEBACK = "Traceback (most recent call last):"
OF_TORCHRUN = "ChildFailedError"
"""Name of torchrun's exception for a failed child process."""
OF_LAUNCHERS = "CalledProcessError"
"""Name of the exception that other launchers raise for a failed child process. Any Python program that calls
``subprocess.run(..., check=True)`` raises it as well."""
CODE_OF_LAUNCHERS = ("accelerate/commands/", "deepspeed/launcher/", "torch/distributed/launch")
LOG_OF_TORCHRUN = "torch/distributed/elastic/"
HYDRA_HINT = "HYDRA_FULL_ERROR"
"""Text in the last line that a failed Hydra application prints."""
IGNORED = "Exception ignored in"
"""Beginning of the line before a traceback that did not end the program, such as one raised while objects are
deleted."""
_EXCEPTION = re.compile(r"[\w.<>]+(:|$)")
"""Beginning of the line of an exception; a program's other output may come between the lines of a traceback."""
_RANK = re.compile(r"\[\w+\]: ?")
"""Prefix by which PyTorch marks the rank that a line comes from: ``[rank1]: ``."""


def find_cause(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the line that best explains why a program failed, and the program's own last lines, from the end of its
    output with its indentation."""
    exceptions, ignored = _exceptions(lines)
    launchers = (slice(start, end) for start, end, text in exceptions if _is_of_launcher(text, lines[start:end]))
    launcher = next(launchers, slice(len(lines), len(lines)))
    own = lines[: launcher.start]
    shown = list(own[-SHOWN_LINES:])
    rank, signals = _root_cause(lines[launcher.stop :])
    raised = [text for _, end, text in exceptions if len(own) - len(shown) <= end < len(own)]
    of_rank = [text for text in raised if text.startswith(f"[rank{rank}]:")]
    heard = [line for number, line in enumerate(own) if number not in ignored and LOG_OF_TORCHRUN not in line]
    causes = (
        [_split_rank(text)[1] for text in of_rank[-1:] or raised[-1:]]
        or signals
        or _message_of_hydra(own)
        or [*filter(_says_something, heard)][-1:]
        or [line for line in lines if line.strip()][-1:]
    )
    return causes[0].strip() if causes else "it printed nothing", shown


def _exceptions(lines: Sequence[str]) -> tuple[list[tuple[int, int, str]], set[int]]:
    """Return each traceback's first and last line number with its exception, and the line numbers of ignored
    tracebacks."""
    found: list[tuple[int, int, str]] = []
    ignored: set[int] = set()
    open_since: dict[str, int] = {}
    before: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        rank, text = _split_rank(line)
        if text == TRACEBACK:
            open_since[rank] = number
        elif rank in open_since and _EXCEPTION.match(text):
            start = open_since.pop(rank)
            above, announced = before.get(rank, (start, ""))
            if announced.startswith(IGNORED):
                ignored |= {above, *range(start, number + 1)}
            else:
                found.append((start, number, line.strip()))
        if rank not in open_since:
            before[rank] = number, text  # the line above a traceback, which may announce it
    return found, ignored


def _is_of_launcher(text: str, traceback: Sequence[str]) -> bool:
    """Whether a launcher raised an exception, judged by the exception's text and traceback."""
    name = text.partition(":")[0]
    if name.endswith(OF_LAUNCHERS):
        return any(code in line for line in traceback for code in CODE_OF_LAUNCHERS)
    return name.endswith(OF_TORCHRUN)


def _root_cause(launcher: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the rank of the process that failed first and the signal that ended it, from ``torchrun``'s summary."""
    rank, signals = None, []
    is_root = False
    for line in launcher:
        name, _, value = (each.strip() for each in line.partition(":"))
        is_root = is_root or name.startswith("Root Cause")
        if is_root and name == "rank":
            rank = value.partition(" ")[0]
        elif is_root and name == "traceback" and value.startswith("Signal"):
            signals.append(value)
    return rank, signals


def _message_of_hydra(lines: Sequence[str]) -> list[str]:
    """Return Hydra's message about a mistake in the overrides or the config: the text before its hint about full
    tracebacks."""
    said = [line.strip() for line in lines]
    at = next((number for number, line in enumerate(said) if HYDRA_HINT in line), 0)
    while at > 0 and not said[at - 1]:
        at -= 1
    start = at
    while start > 0 and said[start - 1]:
        start -= 1
    return [" ".join(said[start:at][:2])] if start < at else []


def _split_rank(line: str) -> tuple[str, str]:
    """Return the mark of a line's rank, empty if it has none, and the rest of the line."""
    match = _RANK.match(line)
    return ("", line.rstrip()) if match is None else (match.group(), line[match.end() :].rstrip())


def _says_something(line: str) -> bool:
    """Whether a line has a letter or a digit, unlike a line of dashes."""
    return any(each.isalnum() for each in line)
