"""Expressions over a config's values: ``train.global_batch_size * data.sequence_length <= 8192``.

Python's arithmetic, comparisons, ``and``, ``or``, ``not``, ``in``, ``a if b else c`` and a few functions, evaluated by
simpleeval: a dotted name is a path of the config, and nothing else can be reached or called. An expression is short,
and so is all that it makes: none takes more than some milliseconds, whoever has written it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, InvalidExpression

from sweeps.compose import bounded_arithmetic as bounded

LONGEST = 2000
"""Characters of an expression."""
MOST_NODES = 300
"""Names, numbers and operations in one."""
LONGEST_SHOWN = 200
"""Characters of a value in a message."""
DEEPEST = 40
"""Operations within operations."""
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "round": bounded.rounded,
    "log2": math.log2,
    "sqrt": math.sqrt,
}
OPERATORS = {
    operator: DEFAULT_OPERATORS[operator]
    for operator in (
        *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub, ast.Not),
        *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Is, ast.IsNot),
    )
}
NODES: set[type[ast.AST]] = {
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call),
    *(ast.Constant, ast.Name, ast.Attribute, ast.List, ast.Tuple),
}
OPERATORS |= {
    sign: bounded.FUNCTIONS[text]
    for sign, text in ((ast.Add, "+"), (ast.Sub, "-"), (ast.Mult, "*"), (ast.Pow, "**"), (ast.Mod, "%"))
}
YAML_NAMES = {"true": True, "false": False, "null": None}
"""What YAML calls ``True``, ``False`` and ``None``; both spellings are understood."""


class Absent(LookupError):
    """The config has no value at a path that was read; its text is the path."""


class Expression:
    """One expression, parsed and found to stay within the language."""

    def __init__(self, text: str):
        """
        Raises:
            ValueError: It is no expression, or goes beyond the language.
        """
        self.text = text
        self._tree = _parsed(text.strip())
        self.paths = list(dict.fromkeys(_paths(self._tree)))
        """The config's paths that it names."""

    def evaluate(self, values: Callable[[str], Any]) -> Any:
        """Its value.

        Args:
            values: The config's value at a path, or ``Absent``; only asked for what the result depends on.

        Raises:
            Absent: As ``values`` does.
            ValueError: It cannot be computed with these values.
        """
        try:
            return _Evaluator(values).eval(self.text, previously_parsed=self._tree)
        except (ArithmeticError, InvalidExpression, TypeError, ValueError) as error:
            raise ValueError(f"{str(error) or type(error).__name__}{self.inputs(values)}") from None

    def inputs(self, values: Callable[[str], Any]) -> str:
        """The values that it was computed from, for a message: ``, with train.lr=0.1``; the empty text if from none."""
        read = []
        for path in self.paths:
            try:
                read.append(f"{path}={repr(values(path))[:LONGEST_SHOWN]}")
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
    """
    Raises:
        ValueError: It is no expression, or one that is too long or too deep.
    """
    if len(text) > LONGEST:
        raise ValueError(f"has {len(text):,} characters; at most {LONGEST:,} are understood")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # a null byte, a thousand brackets
        raise ValueError(f"is no expression ({getattr(error, 'msg', error)})") from None
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MOST_NODES or depth > DEEPEST:
            raise ValueError(
                f"has more than {MOST_NODES} parts, or more than {DEEPEST} within each other; simplify it, or make two"
            )
        level = [child for node in level for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return tree


def _paths(node: ast.AST) -> Iterator[str]:
    """The paths that a tree names, after a check that it holds nothing else than the language has.

    Raises:
        ValueError: It does.
    """
    match node:
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            for argument in args:
                yield from _paths(argument)
        case ast.Call(func=function):
            known = ", ".join(FUNCTIONS)
            raise ValueError(f"calls {ast.unparse(function)!r}; there is {known}, without named arguments")
        case ast.Name(id=name):
            if name not in YAML_NAMES:
                yield name
        case ast.Attribute():
            text = ast.unparse(node)
            if not all(part.isidentifier() for part in text.split(".")):
                raise ValueError(f"has {text!r}, which is no dotted path of the config")
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
            f"{', '.join(FUNCTIONS)} are understood"
        )
