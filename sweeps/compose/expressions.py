"""Expressions over a config's values: ``train.global_batch_size * data.sequence_length <= 8192``.

Arithmetic, comparisons, ``and``, ``or``, ``not``, ``in``, ``a if b else c`` and a few functions, with simpleeval. A
dotted name is a path of the config; an expression can reach and call nothing else. The length of an expression and the
size of its results are bounded, so that one from an untrusted user takes at most a few milliseconds.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, InvalidExpression

from sweeps.compose import bounded_arithmetic as bounded

MAX_LENGTH = 2000
"""Maximum number of characters of an expression."""
MAX_NODES = 300
"""Maximum number of names, numbers and operations in an expression."""
MAX_SHOWN = 200
"""Maximum number of characters of a value in a message."""
MAX_DEPTH = 40
"""Maximum depth of nested operations."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "round": bounded.rounded,
    "log2": math.log2,
    "sqrt": math.sqrt,
}
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **{
        operator: DEFAULT_OPERATORS[operator]
        for operator in (
            *(ast.Div, ast.FloorDiv, ast.UAdd, ast.USub, ast.Not),
            *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
        )
    },
    ast.Add: bounded.add,
    ast.Sub: bounded.subtract,
    ast.Mult: bounded.multiply,
    ast.Mod: bounded.modulo,
    ast.Pow: bounded.power,
}
NODES: set[type[ast.AST]] = {
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call),
    *(ast.Constant, ast.Name, ast.Attribute, ast.List, ast.Tuple),
}
YAML_NAMES = {"true": True, "false": False, "null": None}
"""YAML's spellings of ``True``, ``False`` and ``None``, accepted besides Python's."""


class Absent(LookupError):
    """The config has no value at a path; the message is the path."""


class Expression:
    """One expression, parsed and checked."""

    def __init__(self, text: str):
        """
        Raises:
            ValueError: The text is not an expression, or uses something that is not allowed.
        """
        self.text = text
        self._tree = _parsed(text.strip())
        self.paths = list(dict.fromkeys(_paths(self._tree)))
        """Paths of the config that the expression names."""

    def evaluate(self, values: Callable[[str], Any]) -> Any:
        """Compute the expression. ``values`` returns the config's value at a path, or raises ``Absent``; it is called
        only for values that are needed.

        Raises:
            Absent: The config lacks a value.
            ValueError: The expression cannot be computed with these values.
        """
        try:
            return _Evaluator(values).eval(self.text, previously_parsed=self._tree)
        except (ArithmeticError, InvalidExpression, TypeError, ValueError) as error:
            raise ValueError(f"{str(error) or type(error).__name__}{self.inputs(values)}") from None

    def inputs(self, values: Callable[[str], Any]) -> str:
        """Describe the values that the expression reads, for a message: ``, with train.lr=0.1``; empty if it reads
        none."""
        read = []
        for path in self.paths:
            try:
                read.append(f"{path}={repr(values(path))[:MAX_SHOWN]}")
            except Absent:
                continue
        return f", with {', '.join(read)}" if read else ""


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]  # simpleeval has no types
    nodes: dict[type[ast.AST], Any]

    def __init__(self, values: Callable[[str], Any]):
        super().__init__(operators=OPERATORS, functions={})
        self.functions = FUNCTIONS
        self._values = values
        handlers: dict[type[ast.AST], Any] = {**self.nodes, ast.Name: self._at_path, ast.Attribute: self._at_path}
        for kind in (ast.List, ast.Tuple):
            handlers[kind] = partial(self._joined, handlers[kind])
        self.nodes = {node: handlers[node] for node in NODES}

    def _joined(self, make: Callable[[ast.AST], Any], node: ast.AST) -> Any:
        return bounded.joined(make(node))

    def _at_path(self, node: ast.Name | ast.Attribute) -> Any:
        path = ast.unparse(node)
        return YAML_NAMES[path] if path in YAML_NAMES else self._values(path)


def _parsed(text: str) -> ast.expr:
    """Parse an expression and check its size.

    Raises:
        ValueError: The text is not an expression, or is too long or too deep.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # a null byte, a thousand brackets
        raise ValueError(f"is not an expression ({getattr(error, 'msg', error)})") from None
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES or depth > MAX_DEPTH:
            raise ValueError(
                f"has more than {MAX_NODES} parts, or is nested more than {MAX_DEPTH} deep; simplify or split it"
            )
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return tree


def _paths(node: ast.AST) -> Iterator[str]:
    """Check a syntax tree, and yield the paths that it names.

    Raises:
        ValueError: The tree has something that is not allowed.
    """
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            for argument in args:
                yield from _paths(argument)
        case ast.Call(func=function):
            known = ", ".join(FUNCTIONS)
            raise ValueError(f"calls {ast.unparse(function)!r}; the functions are {known}, without named arguments")
        case ast.Name(id=name):
            if name not in YAML_NAMES:
                yield name
        case ast.Attribute():
            text = ast.unparse(node)
            if not all(part.isidentifier() for part in text.split(".")):
                raise ValueError(f"has {text!r}, which is not a dotted path of the config")
            yield text
        case _:
            _check_node(node)
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    yield from _paths(child)


def _check_node(node: ast.AST) -> None:
    operators = [*getattr(node, "ops", []), *([node.op] if hasattr(node, "op") else [])]
    if type(node) not in NODES or any(type(each) not in {*OPERATORS, ast.And, ast.Or} for each in operators):
        raise ValueError(
            f"has {ast.unparse(node)!r}; only arithmetic, comparisons, and, or, not, in, if else, lists and "
            f"{', '.join(FUNCTIONS)} are allowed"
        )
