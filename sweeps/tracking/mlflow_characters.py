"""Conversion of names and values to ones that MLflow accepts: it refuses some characters and paths, and truncates long
texts.

Different names stay different. A name that MLflow accepts stays unchanged; in any other name, each refused character
becomes ``_x0040_``, with the character's code, as in XML. A name that would be too long ends with a checksum; the
journal and the trial's report log have the full name. Parameters that do not fit are also kept whole, in tags of their
run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache

LONGEST_NAME = 250
LONGEST_PARAMETER = 6000
LONGEST_TAG = 7500
"""Maximum numbers of characters in MLflow's names and texts; it takes 8,000 in a tag."""
WHOLE_PARAMETERS = "sweeps.params."
"""Prefix of the tags that hold parameters too long for MLflow: a JSON mapping of path to full text, cut into the parts
``sweeps.params.0``, ``sweeps.params.1`` and so on."""
_REFUSED = re.compile(r"[^\w.\-: /]|_(?=x[0-9A-F]{4,6}_)")
_ESCAPED = re.compile(r"_x([0-9A-F]{4,6})_")
_NOT_STORED = re.compile("[\0\ud800-\udfff]")
_EMPTY = "_"


@lru_cache(maxsize=10_000)
def to_name(name: str) -> str:
    """Return the name in MLflow of a metric, a parameter or a tag.

    >>> to_name("eval/loss"), to_name("recall@5"), to_name("betas[0]"), to_name("a//b")
    ('eval/loss', 'recall_x0040_5', 'betas_x005B_0_x005D_', 'a/_x002F_b')
    """
    if not name:
        return _EMPTY
    if name == _EMPTY:
        return _escaped(name)
    found = _REFUSED.sub(lambda match: _escaped(match[0]), name)
    # MLflow takes a name for a path: a slash must be between two folders, and no folder may be `.` or `..`.
    found = re.sub(r"(?<![^/])/|/$", lambda match: _escaped(match[0]), found)
    found = re.sub(r"^\.(?=\.)|(?<![^/])\.(?=\.?(?:/|$))", lambda match: _escaped(match[0]), found)
    if len(found) <= LONGEST_NAME:
        return found
    checksum = f"_x{hashlib.sha1(name.encode('utf-8', 'surrogatepass'), usedforsecurity=False).hexdigest().upper()}_"
    return found[: LONGEST_NAME - len(checksum)] + checksum


@lru_cache(maxsize=10_000)
def from_name(name: str) -> str:
    """Return the name that was given to ``to_name``; a name that was too long stays truncated.

    >>> from_name("recall_x0040_5")
    'recall@5'
    """
    return "" if name == _EMPTY else _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)


def storable(text: str) -> str:
    """Return text without the characters that a database cannot hold: NUL, which PostgreSQL refuses, and lone
    surrogates, which Python uses for bytes that are not UTF-8. The store's error for these would look temporary.
    """
    return _NOT_STORED.sub("\N{REPLACEMENT CHARACTER}", text)


def fit_parameters(params: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return parameters' values as strings, by path, as MLflow accepts them, and tags with the full text of those that
    are too long."""
    named = {path: to_name(path) for path in params}
    fitting = {named[path]: storable(text[:LONGEST_PARAMETER]) for path, text in params.items()}
    whole = {
        path: text for path, text in params.items() if fitting[named[path]] != text or from_name(named[path]) != path
    }
    text = json.dumps(whole) if whole else ""
    parts = [text[start : start + LONGEST_TAG] for start in range(0, len(text), LONGEST_TAG)]
    return fitting, {f"{WHOLE_PARAMETERS}{number}": part for number, part in enumerate(parts)}


def whole_parameters(params: Mapping[str, str], tags: Mapping[str, str]) -> dict[str, str]:
    """Return a run's parameters as they were given to ``fit_parameters``."""
    parts: list[str] = []
    while (part := tags.get(f"{WHOLE_PARAMETERS}{len(parts)}")) is not None:
        parts.append(part)
    try:
        whole: dict[str, str] = json.loads("".join(parts)) if parts else {}
    except ValueError:  # a part has not arrived yet
        whole = {}
    replaced = {to_name(path) for path in whole}
    return {from_name(name): text for name, text in params.items() if name not in replaced} | whole


def _escaped(characters: str) -> str:
    return "".join(f"_x{ord(each):04X}_" for each in characters)
