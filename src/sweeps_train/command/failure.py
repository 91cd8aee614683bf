"""The cause of a program's failure, found in its last lines of output.

Launchers such as ``torchrun`` end with a traceback and a summary of their own, which do not say why the program failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SHOWN_LINES = 20
"""Maximum lines of output in an error."""
TRACEBACK = "Traceback (most recent call last):"
LAUNCHERS = ("ChildFailedError", "CalledProcessError")
"""Exceptions of launchers, about the processes that they have started."""
LOG_OF_TORCHRUN = "torch/distributed/elastic/"
_RANK = re.compile(r"\[\w+\]: ?")
"""Beginning of a line by which PyTorch says whose it is: ``[rank1]: ``."""


def find_cause(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the line that says best why a program has failed, and the last lines of the program itself.

    Args:
        lines: The end of its output, with indentation.
    """
    exceptions = _exceptions(lines)
    own, launcher = list(lines), list[str]()
    for start, end, text in exceptions:
        if text.partition(":")[0].endswith(LAUNCHERS):
            own, launcher = own[:start], own[end:]
            break
    shown = own[-SHOWN_LINES:]
    rank, told = _root_cause(launcher)
    found = [text for _, end, text in exceptions if len(own) - len(shown) <= end < len(own)]
    by_rank = [_without_rank(text) for text in found if text.startswith(f"[rank{rank}]:")]
    printed = [line.strip() for line in own if _says_something(line) and LOG_OF_TORCHRUN not in line]
    others = [line.strip() for line in lines if line.strip()]
    causes = by_rank[-1:] or [_without_rank(text) for text in found[-1:]] or told or printed[-1:] or others[-1:]
    return causes[0] if causes else "it printed nothing", shown


def _exceptions(lines: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return each traceback's first and last line by number, with the text of the last one, which has the exception.
    Those of several processes may be mixed."""
    found = []
    open_since: dict[str, int] = {}
    for number, line in enumerate(lines):
        rank, text = _split_rank(line)
        if text == TRACEBACK:
            open_since[rank] = number
        elif rank in open_since and text and not text[0].isspace():
            found.append((open_since.pop(rank), number, line.strip()))
    return found


def _root_cause(launcher: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the rank of the process that failed first and the signal that has ended it, by ``torchrun``'s summary."""
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


def _split_rank(line: str) -> tuple[str, str]:
    match = _RANK.match(line)
    return ("", line.rstrip()) if match is None else (match.group(), line[match.end() :].rstrip())


def _without_rank(line: str) -> str:
    return _split_rank(line)[1]


def _says_something(line: str) -> bool:
    """Whether a line has a letter or a digit, unlike a rule."""
    return any(each.isalnum() for each in line)
