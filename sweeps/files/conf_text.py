"""Formats values as a person would write them in a config, on one line each."""

from __future__ import annotations

import json
import math
import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sweeps.errors import UserError

_PLAIN = re.compile(r"(?!\.\d)[A-Za-z_./][\w./+-]*")
"""Text that needs no quotes. YAML reads .5 as a number."""
_KEYWORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"}


def scalar(value: Any) -> str:
    """Return a value as YAML on one line. Strings that YAML, OmegaConf or Hydra would interpret differently are
    quoted."""
    if isinstance(value, numbers.Real) and hasattr(value, "item"):  # NumPy's
        value = value.item()
    if isinstance(value, Mapping):
        return flow(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) is not None and value.lower().strip(".") not in _KEYWORDS
        return value if is_plain else json.dumps(value.replace("${", "\\${"), ensure_ascii=False)
    if isinstance(value, float):
        return _real(value)
    return json.dumps(value)


def flow(values: Mapping[str, Any]) -> str:
    """Return a mapping in one line: ``{type: float, low: 0.0}``."""
    return "{" + ", ".join(f"{scalar(key)}: {scalar(value)}" for key, value in values.items()) + "}"


def lines_of(values: Mapping[str, Any], indent: str, written: Callable[[Any], str]) -> Iterator[str]:
    """Yield the lines of a mapping, with one for each value, as ``written`` returns it."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{scalar(key)}:"
            yield from lines_of(value, f"{indent}  ", written)
        else:
            yield f"{indent}{scalar(key)}: {written(value)}"


def nested(values: Mapping[str, Any], keys: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return ``{"a.b": 1}`` as ``{"a": {"b": 1}}``.

    Args:
        values: Values by dotted name.
        keys: Keys of names that are not to be divided at each dot.

    Raises:
        UserError: A name is a value and has others below it.
    """
    result: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = (keys or {}).get(path) or path.split(".")
        section = result
        for part in sections:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise UserError(f"{path}: {part} has a value of its own, so that nothing can be below it; rename one")
        if isinstance(section.get(name), dict):
            raise UserError(f"{path}: has a value of its own, and others below it; rename one")
        section[name] = value
    return result


def _real(value: float) -> str:
    """Return a float in a form that YAML 1.1 reads as a float: with a dot before an exponent."""
    if not math.isfinite(value):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    text = repr(value)
    mantissa, sign, exponent = text.partition("e")
    if not sign:
        return text
    return (
        f"{mantissa if '.' in mantissa else mantissa + '.0'}e{'-' if exponent[0] == '-' else '+'}{exponent.strip('+-')}"
    )
