"""Reads metrics from the lines that a program prints."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweeps_train.config.command import JsonLines, LinePattern, MetricSource, PrintedDictionaries
from sweeps_train.reports.reported_metrics import as_number, flattened

Record = dict[str, float]
"""Metrics of one record, by the program's names."""
Parse = Callable[[str], Record]
"""Returns the metrics in a line; empty if it has none."""
LONGEST_LINE = 2**20
"""Number of characters from which a line is no longer searched for metrics."""
_OBJECT = re.compile(r"<[^<>]*>")
"""An object as Python prints it, which is no expression: ``tensor(0.5, grad_fn=<MulBackward0>)``."""
_NOT_FINITE = {"nan": float("nan"), "inf": float("inf"), "NaN": float("nan"), "Infinity": float("inf")}


def parsers(sources: Sequence[MetricSource]) -> list[Parse]:
    """Return a parser for each metric source that reads the program's output."""
    found: list[Parse] = []
    for source in sources:
        if isinstance(source, JsonLines):
            found.append(json_record)
        elif isinstance(source, PrintedDictionaries):
            found.append(dictionary_record)
        elif isinstance(source, LinePattern):
            found.append(pattern_record(source.pattern))
    return found


def record_in(line: str, parse: Sequence[Parse]) -> Record:
    """Return the metrics in a line by the first parser that finds any."""
    if len(line) > LONGEST_LINE:
        return {}
    return next((record for each in parse if (record := each(line))), {})


def json_record(line: str) -> Record:
    """Return the numbers of a JSON object in a line, which may have text before and after it.

    >>> json_record('INFO {"loss": 0.5, "eval": {"acc": "0.9"}, "note": "x"}')
    {'loss': 0.5, 'eval/acc': 0.9}
    """
    text = _braces(line)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return numbers_in(found) if isinstance(found, dict) else {}


def dictionary_record(line: str) -> Record:
    """Return the numbers of a dictionary that Python has printed into a line.

    >>> dictionary_record("{'loss': '2.5', 'epoch': 1, 'norm': nan, 'acc': np.float64(0.5)}")
    {'loss': 2.5, 'epoch': 1.0, 'norm': nan, 'acc': 0.5}
    """
    text = _braces(line)
    if text is None:
        return {}
    for each in dict.fromkeys((text, _OBJECT.sub("None", text))):
        try:
            tree = ast.parse(each, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return numbers_in(_printed(tree)) if isinstance(tree, ast.Dict) else {}
    return {}


def pattern_record(pattern: str) -> Parse:
    r"""Return a parser for a regular expression whose named groups are metrics.

    >>> pattern_record(r"epoch (?P<step>\d+): (?P<loss>\S+)")("epoch 3: 0.25")
    {'step': 3.0, 'loss': 0.25}
    """
    compiled = re.compile(pattern)

    def parse(line: str) -> Record:
        found = compiled.search(line)
        return {} if found is None else numbers_in(found.groupdict())

    return parse


def numbers_in(values: Mapping[str, Any]) -> Record:
    """Return the numbers in nested mappings, by their keys joined by ``/``; texts that are numbers count."""
    found: Record = {}
    for name, value in flattened(values):
        if (number := printed_number(value)) is not None:
            found[name] = number
    return found


def printed_number(value: Any) -> float | None:
    """Return a number, or a text that is one, as a float; None for anything else.

    >>> [printed_number(each) for each in ("1e-3", 2, "fast", True, "5%", "1_000")]
    [0.001, 2.0, None, None, None, None]
    """
    if isinstance(value, bool):
        return None
    if not isinstance(value, str):
        return as_number(value)
    if "_" in value or len(value) > 40:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _braces(line: str) -> str | None:
    """Return the part of a line from its first brace to its last one."""
    start, end = line.find("{"), line.rfind("}")
    return line[start : end + 1] if 0 <= start < end else None


def _printed(node: ast.expr) -> Any:
    """Return the value of a printed expression: numbers (also as ``np.float64(0.5)`` and ``tensor(0.5)``), texts and
    dictionaries; None for anything else."""
    match node:
        case ast.Dict(keys=keys, values=values):
            return {
                str(key.value): _printed(value)
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant)
            }
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = printed_number(_printed(operand))
            return None if number is None else -number
        case ast.Name(id=name):
            return _NOT_FINITE.get(name)
        case ast.Call(args=[argument, *_]):
            return _printed(argument)
    return None
