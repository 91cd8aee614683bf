"""Patterns for the metrics that a script prints: ``print(f"step {step}: val loss {loss:.4f}")``, or the same by
``format``, by ``%`` or as several arguments."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile, zip_longest
from string import Formatter
from typing import NamedTuple

from sweeps.scaffold.syntax import name_of

NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?|nan|inf"
STEP_NAMES = ("step", "iter", "iteration", "global_step")
_VALIDATION = re.compile(r"(?<![a-z])e?val(?!ue)")
_TEST = re.compile(r"(?<![a-z])(test|dev)(?![a-z])")
_PERCENT = re.compile(r"%(?:\(\w*\))?[-+ #0]*[\d*]*(?:\.[\d*]+)?([a-zA-Z%])")
"""A value in a text for the operator ``%``."""

METRIC_NAMES = ("accuracy", "acc", "f1", "auc", "score", "reward", "loss", "error", "perplexity", "rmse", "mae")


class Part(NamedTuple):
    """A text of a line, and the value after it."""

    text: str
    name: str
    """Name of the value: of a metric, or ``step``; empty for any other value."""
    rank: int = 2
    """Rank of the metric's name, or else of the text before it."""


def printed_patterns(tree: ast.Module) -> tuple[list[str], list[dict[str, str]]]:
    """Return the metrics that the script prints, the held-out ones first, and the items of ``task.read`` that find
    them. A metric that several lines print is read from one of them, held-out before training."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    lines = [_named(line) for call in calls for line in _lines(_printed(call))]
    lines.sort(key=lambda line: min((part.rank for part in line), default=2))
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        known = {name for names in found.values() for name in names}
        new = {part.name: part.rank for part in line if part.name not in ("", "step", *known)}
        if new and _pattern(line, ()) not in found:
            found[_pattern(line, known)] = new
    ranks = {name: each for names in found.values() for name, each in names.items()}
    metrics = sorted(ranks, key=lambda name: (ranks[name], rank(name), name))
    if not any("<step>" in pattern for pattern in found):
        # Records are counted as steps: lines of the training between two evaluations would be some, too.
        best = ranks[metrics[0]] if metrics else 0
        found = {pattern: names for pattern, names in found.items() if best == 2 or min(names.values()) < 2}
        metrics = [name for name in metrics if any(name in names for names in found.values())]
    # A pattern within another one would take its lines.
    return metrics, [{"kind": "regex", "pattern": pattern} for pattern in sorted(found, key=len, reverse=True)]


def is_metric(name: str) -> bool:
    """Whether a name is that of a metric.

    >>> [is_metric(each) for each in ("val_Acc", "accumulation_steps")]
    [True, False]
    """
    return any(part in name.lower().replace("accum", "") for part in METRIC_NAMES)


def rank(text: str) -> int:
    """Return 0 for the name of a metric of validation, 1 of a test, 2 of anything else.

    >>> [rank(each) for each in ("Valid Loss", "eval/acc", "test_loss", "value", "train_loss")]
    [0, 0, 1, 2, 2]
    """
    return 0 if _VALIDATION.search(text.lower()) else 1 if _TEST.search(text.lower()) else 2


def _printed(call: ast.Call) -> list[str | None]:
    """Return what a call prints or logs, with None for each value."""
    function = name_of(call.func)
    if function in ("print", "print0"):
        given = [each.value for each in call.keywords if each.arg == "sep"] or [ast.Constant(" ")]
        joined = [[*_pieces(given[0]), *_pieces(each)] for each in call.args]
        return [piece for pieces in joined for piece in pieces][1:]
    if function in ("info", "write"):
        text = call.args[0]
        return _pieces(ast.BinOp(text, ast.Mod(), text) if len(call.args) > 1 else text)
    return []


def _pieces(node: ast.expr) -> list[str | None]:
    """Return the constant texts of an expression, with None for each value between them."""
    pieces: list[str | None] = []
    match node:
        case ast.Constant(value=str(text)):
            pieces = [text]
        case ast.JoinedStr(values=values):
            pieces = [piece for each in values for piece in _pieces(each)]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            with contextlib.suppress(ValueError):  # not a text for format
                fields = Formatter().parse(text)
                pieces = [piece for text, name, *_ in fields for piece in ([text] if name is None else [text, None])]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            parts = _PERCENT.split(text)  # texts, and the letters of the values between them
            pieces = [piece if at % 2 == 0 else "%" if piece == "%" else None for at, piece in enumerate(parts)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            pieces = [*_pieces(left), *_pieces(right)]
    return pieces if any(piece is not None for piece in pieces) else [None]


def _lines(pieces: Iterable[str | None]) -> Iterator[list[str | None]]:
    """Yield the pieces of each line of a text."""
    line: list[str | None] = []
    for piece in pieces:
        first, *others = [None] if piece is None else re.split(r"[\r\n]", piece)
        line.append(first)
        for each in others:
            yield line
            line = [each]
    yield line


def _named(pieces: Iterable[str | None]) -> list[Part]:
    """Return the parts of a line."""
    texts = [""]
    for piece in pieces:
        if piece is None:
            texts.append("")
        else:
            texts[-1] += piece
    parts: list[Part] = []
    before = ""
    for text, after in zip_longest(texts[:-1], texts[1:]):
        before += text
        name = _trailing_name(text)
        name = "step" if name in STEP_NAMES else name
        if any(name == part.name for part in parts):
            parts.append(Part(text, ""))
        elif name == "step":
            parts.append(Part(text, name))
        elif is_metric(name) and not after.startswith("/"):  # of 98/100 it is a number out of others
            of_name = rank(name)
            parts.append(Part(text, name, of_name if of_name < 2 or "train" in name else rank(before)))
        else:
            parts.append(Part(text, ""))
    return parts


def _pattern(line: Iterable[Part], known: Iterable[str]) -> str:
    """Return the pattern of a line until its last metric."""
    pattern, kept = "", ""
    for text, name, _ in line:
        pattern += re.sub(r"(\\?\s)+", r"\\s+", re.escape(text))
        if pattern and not pattern.endswith((r"\s+", r"\S+")):
            pattern += r"\s*"
        if name and name not in known:
            pattern += f"(?P<{name}>{NUMBER})"
            kept = pattern if name != "step" else kept
        elif pattern and not pattern.endswith(r"\S+"):
            pattern += r"\S+"
    return kept.removeprefix(r"\s+")


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
