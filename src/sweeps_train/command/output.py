"""Reads metrics from the lines that a program prints."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sweeps_train.config.command import JsonLines, LinePattern, MetricSource, PrintedDictionaries
from sweeps_train.reports.reported_metrics import as_number, flattened

Record = dict[str, float]
"""Metrics of one record, by the program's names."""
Parse = Callable[[str], Record]
"""Returns the metrics in a line; empty if it has none."""
LONGEST_LINE = 2**20
"""Maximum characters of a line that is searched for metrics."""
MOST_IN_A_LINE = 16
"""Maximum number of objects that are parsed in one line."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequence by which a program colours what it prints."""
_OBJECT = re.compile(r"<[^<>]*>")
"""An object's ``<...>`` representation, which is not a Python expression: ``tensor(0.5, grad_fn=<MulBackward0>)``."""
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
    """Return the metrics that the first successful parser finds in a line; empty if none finds any."""
    if len(line) > LONGEST_LINE:
        return {}
    line = _COLOURS.sub("", line)
    return next((record for each in parse if (record := each(line))), {})


def json_record(line: str) -> Record:
    """Return the numbers of the JSON objects in a line, which may have text before and after them. A name that has
    several values is left out.

    >>> json_record('INFO {"loss": 0.5, "eval": {"acc": "0.9"}, "note": "x"}')
    {'loss': 0.5, 'eval/acc': 0.9}
    """
    return _record(line, _from_json)


def dictionary_record(line: str) -> Record:
    """Return the numbers of the dictionaries that Python has printed into a line. A name that has several values is
    left out.

    >>> dictionary_record("{'loss': '2.5', 'epoch': 1, 'norm': nan, 'acc': np.float64(0.5)}")
    {'loss': 2.5, 'epoch': 1.0, 'norm': nan, 'acc': 0.5}
    """
    return _record(line, _from_dictionary)


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
    numbers = ((name, printed_number(value)) for name, value in flattened(values))
    return {name: number for name, number in numbers if number is not None}


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


def _record(line: str, read: Callable[[str], Record | None]) -> Record:
    """Return the numbers in a line, of which the text between the outermost braces is read as one record, or else
    each pair of braces."""
    start, end = line.find("{"), line.rfind("}")
    if not 0 <= start < end:
        return {}
    text = line[start : end + 1]
    if (whole := read(text)) is not None:
        return whole
    found = [record for each in islice(_pairs_of_braces(text), MOST_IN_A_LINE) if (record := read(each)) is not None]
    pairs = dict.fromkeys(pair for record in found for pair in record.items())
    counts = Counter(name for name, _ in pairs)
    return {name: value for name, value in pairs if counts[name] == 1}


def _pairs_of_braces(text: str) -> Iterator[str]:
    """Yield the parts of a text within outermost braces."""
    depth = start = 0
    for brace in re.finditer("[{}]", text):
        if brace[0] == "{":
            start = brace.start() if depth == 0 else start
            depth += 1
        elif depth > 0:
            depth -= 1
            if depth == 0:
                yield text[start : brace.end()]


def _from_json(text: str) -> Record | None:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        return numbers_in(found) if isinstance(found, dict) else None
    return None


def _from_dictionary(text: str) -> Record | None:
    for each in dict.fromkeys((text, _OBJECT.sub("None", text))):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.parse(each, mode="eval").body
            return numbers_in(_printed(tree)) if isinstance(tree, ast.Dict) else None
    return None


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
        case ast.Call(args=[argument]):  # several are no number: of Fraction(1, 2) the first would be another one
            return _printed(argument)
    return None
