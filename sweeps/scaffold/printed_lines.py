"""Patterns for the metrics that a script prints with f-strings: ``print(f"step {step}: val loss {loss:.4f}")``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain, takewhile

from sweeps.scaffold.syntax import name_of

NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?|nan|inf"
STEP_NAMES = ("step", "iter", "iteration", "global_step")


def printed_patterns(tree: ast.Module, metric_names: tuple[str, ...]) -> tuple[list[str], list[dict[str, str]]]:
    """Return the metrics that the script prints, the held-out ones first, and the items of ``task.read`` that find
    them.

    Args:
        tree: The script.
        metric_names: Parts of the names of metrics.
    """
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in ("print", "print0", "info", "write") and node.args:
            text = node.args[0]
            if isinstance(text, ast.JoinedStr):
                pattern, metrics = _pattern(text, metric_names)
                if metrics:
                    found[pattern] = metrics
    names = sorted({*chain(*found.values())}, key=lambda name: ("val" not in name, name))
    return names, [{"kind": "regex", "pattern": pattern} for pattern in found]


def _pattern(text: ast.JoinedStr, metric_names: tuple[str, ...]) -> tuple[str, list[str]]:
    pattern, kept, metrics = "", "", list[str]()
    for before, is_value in _parts(text):
        if not is_value:
            pattern += re.sub(r"\\?\s+", r"\\s+", re.escape(before))
            continue
        name = "step" if before in STEP_NAMES else before
        is_metric = any(part in name for part in metric_names)
        if (name == "step" or is_metric) and f"<{name}>" not in pattern:
            pattern += f"(?P<{name}>{NUMBER})"
            kept, metrics = pattern, [*metrics, name] if is_metric else metrics
        else:
            pattern += r"\S+"
    return kept, metrics


def _parts(text: ast.JoinedStr) -> Iterator[tuple[str, bool]]:
    """Yield the constant parts of an f-string, and for each value between them the name formed by the preceding
    words."""
    before = ""
    for each in text.values:
        if isinstance(each, ast.Constant):
            before = str(each.value)
            yield before, False
        else:
            yield _trailing_name(before), True
            before = ""


def _trailing_name(text: str) -> str:
    """Return the words at the end of a string, before a colon or an equals sign, as one name.

    >>> _trailing_name("step 3, Val Loss: ")
    'val_loss'
    """
    found: list[str] = []
    stripped = text.rstrip()
    stripped = stripped[:-1].rstrip() if stripped.endswith((":", "=")) else stripped
    for word in reversed(stripped.split(" ")):
        name = "".join(takewhile(lambda each: each.isalnum() or each == "_", reversed(word)))[::-1]
        if not name.isidentifier():
            break
        found.insert(0, name.lower())
        if name != word:
            break
    return "_".join(found)
