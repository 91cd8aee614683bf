"""Typed values in MLflow's strings: a parameter comes back as it was sampled."""

from __future__ import annotations

import json
import math
import posixpath
import re
import time
from collections.abc import Sequence
from typing import Any


def to_text(value: Any) -> str:
    """``0.001``, ``16``, ``true``, ``[1, 2]`` as JSON, strings plain; a string that reads as JSON is quoted."""
    if isinstance(value, str):
        return json.dumps(value) if not value or _is_json(value) else value
    return json.dumps(value, default=str)


def from_text(text: str) -> Any:
    """The value behind ``to_text``; what is no JSON (someone else's parameter) is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def metric_name(name: str) -> str:
    """The name under which MLflow takes a metric: it refuses some characters, and paths that are not plain."""
    plain = posixpath.normpath(re.sub(r"[^\w.\-: /]", "_", name)).lstrip("./")
    return plain[:250] or "_"


def number(text: str | None) -> float | None:
    """A number in a tag; nothing if there is none."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def numbers(text: str | None) -> tuple[float, ...]:
    """One number in a tag, or several in a JSON list; none if there is no such tag."""
    if text is not None and text.startswith("["):
        return tuple(float(each) for each in json.loads(text))
    one = number(text)
    return () if one is None else (one,)


def written(values: Sequence[float]) -> str:
    """The text that ``numbers`` reads."""
    return repr(float(values[0])) if len(values) == 1 else json.dumps([float(value) for value in values])


def finite(value: float | None) -> float | None:
    """JSON knows neither NaN nor infinity: they are shown as no value."""
    return value if value is not None and math.isfinite(value) else None


def short(value: Any) -> str:
    """A parameter's value for people: three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def now_ms() -> int:
    """Return the Unix time in milliseconds, MLflow's unit."""
    return int(time.time() * 1000)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
