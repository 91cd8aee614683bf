"""Suggestions for misspelt names: existing names with a similar spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_NAME = 500
"""Maximum characters of a name that is compared: the time grows with the square of the length."""


def closest_names(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to ``count`` known names with a similar spelling, and longer or shorter forms (``maximize``, ``max``).
    Paths that end with the name (``model.heads``, ``heads``) come first, then the name in other case (``C``, ``c``).
    """
    if len(name) > LONGEST_NAME:
        return []
    known = sorted(set(known))
    # All letters of a much shorter name may be in the other one by chance, as those of "age" in "target".
    as_long = [each for each in known if 2 * min(len(each), len(name)) > max(len(each), len(name))]
    alike = difflib.get_close_matches(name, as_long, n=count, cutoff=0.6)
    abbreviated = [each for each in known if min(len(each), len(name)) > 2 and _begins_alike(each, name)]
    same_end = [each for each in known if each.endswith(f".{name}")]
    other_case = [each for each in known if each.lower() == name.lower()]
    return list(dict.fromkeys([*same_end, *other_case, *alike, *abbreviated]))[:count]


def did_you_mean(name: str, known: Iterable[str], count: int = 3, listed: int = 12) -> str:
    """Return the end of an error message: ``"; did you mean a, b?"`` with up to ``count`` names. When none is close, a
    list of all names, or an empty string if there are more than ``listed``."""
    if len(name) > LONGEST_NAME:
        return ""
    known = sorted(set(known))
    close = closest_names(name, known, count)
    if close:
        return f"; did you mean {', '.join(close)}?"
    if known and len(known) <= listed:
        return f"; use {'one of ' if len(known) > 1 else ''}{', '.join(known)}"
    return ""


def _begins_alike(one: str, other: str) -> bool:
    return one.lower().startswith(other.lower()) or other.lower().startswith(one.lower())
