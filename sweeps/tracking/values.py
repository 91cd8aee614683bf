"""Conversion between values and the strings in MLflow's parameters and tags."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from sweeps.texts.wording import value_text
from sweeps.tracking.mlflow_characters import LONGEST_TAG

T = TypeVar("T")

_JSON_WORDS = frozenset({"true", "false", "null", "NaN", "Infinity"})
"""The words that Python's JSON has."""


def read_tag(text: str | None, build: Callable[[Any], T], otherwise: T) -> T:
    """Return the object that ``build`` makes of the JSON in a tag; ``otherwise`` if there is no such tag, or somebody
    has edited or truncated it."""
    if not text:
        return otherwise
    try:
        return build(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return otherwise


def read_list(text: str | None, build: Callable[[Any], T]) -> tuple[T, ...]:
    """Return the objects that ``build`` makes of the elements of a JSON list in a tag; empty where ``read_tag`` returns
    ``otherwise``."""
    return read_tag(text, lambda found: tuple(map(build, found)), ())


def to_text(value: Any) -> str:
    """Return the text of a parameter's value: JSON (``0.001``, ``true``, ``[1, 2]``), but strings without quotes unless
    they could be read as JSON."""
    if isinstance(value, str):
        return value if value and from_text(value) == value else json.dumps(value)
    return json.dumps(value, default=str)


def from_text(text: str) -> Any:
    """Return the value of a string from ``to_text``; one that is not JSON is returned unchanged."""
    if text.isidentifier() and text not in _JSON_WORDS:  # the error below takes longer than all else
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def number(text: str | None) -> float | None:
    """Return the number in a tag; None if there is none."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def numbers(text: str | None) -> tuple[float, ...]:
    """Return the number in a tag, or the numbers in its JSON list; empty if there is no such tag, or it has other
    content."""
    if text is not None and text.startswith("["):
        with suppress(ValueError, TypeError):
            return tuple(float(each) for each in json.loads(text))
    one = number(text)
    return () if one is None else (one,)


def written(values: Sequence[float]) -> str:
    """Format numbers as the text of a tag, which ``numbers`` reads."""
    return repr(float(values[0])) if len(values) == 1 else json.dumps([float(value) for value in values])


def latest_as_json(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return a JSON list of the last of these documents, as many as fit into a tag, but at least one."""
    texts: list[str] = []
    room = LONGEST_TAG
    for each in reversed(documents):
        text = json.dumps(each, separators=(",", ":"), ensure_ascii=False)
        room -= len(text) + 1
        if texts and room < 0:
            break
        texts.append(text)
    return f"[{','.join(reversed(texts))}]"


def first_as_json(names: Sequence[str]) -> str:
    """Return a JSON list of the first of these names, as many as fit into a tag."""
    text = json.dumps(list(names))
    while len(text) > LONGEST_TAG:
        names = names[: len(names) * LONGEST_TAG // len(text)]
        text = json.dumps(list(names))
    return text


def finite(value: float | None) -> float | None:
    """Return a value for JSON, with None for NaN and infinity, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def short(value: Any) -> str:
    """Return a short text of a value for display, with three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)


def now_ms() -> int:
    """Return the Unix time in milliseconds, the unit of MLflow and of workers' events."""
    return int(time.time() * 1000)
