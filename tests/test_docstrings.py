"""The first words of every docstring: it says what a thing is or does, and stands without the code."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from syntax import statements

# "What is kept." and "Of a trial." answer a question that only the code asks; "Metrics to keep." stands alone.
EVERYWHERE = {"What", "Of", "To", "Without"}
PRODUCT = EVERYWHERE | {
    *("How", "Where", "Who", "Why", "When", "That", "Those", "It", "In", "By"),
    *("As", "For", "If", "At", "On", "From", "With", "Which"),
}
FIRST_WORDS = {
    "sweeps": PRODUCT,
    "src": PRODUCT,
    "benchmarks": EVERYWHERE,
    "demos": EVERYWHERE,
    "docs": EVERYWHERE,
    "tests": EVERYWHERE,
}

# Habits that hide what a function does: "Take that a trial ends" records it, "Take a trial's end" handles it.
HABITS = re.compile(r"\W*(Take (that|note|notice|a|an|the)|Tell that|See the module)\b")
PLAIN = {"Take a model's head out", "Take a step", "Take a job out"}

# "Args: name: The name. age: The age." is one paragraph to editors and to the reference, without any argument.
SECTION_AS_SENTENCE = re.compile(r"(?:\A|\n)[ \t]*(?:Args|Returns|Raises|Yields|Example):[ \t]*\S")

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring: of modules, classes, functions, and of the attributes that precede one."""
    for node in (tree, *statements(tree)):
        if not isinstance(node, DOCUMENTED):
            continue
        body = node.body
        for index, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    if index == 0 or isinstance(body[index - 1], ast.Assign | ast.AnnAssign):
                        yield statement.lineno, text


@functools.cache
def docstrings_below(folder: Path) -> list[tuple[str, str]]:
    """Place and text of every docstring in a folder, whose files are parsed once for all tests."""
    return [
        (f"{path.relative_to(folder.parent).as_posix()}:{line}", text)
        for path in sorted(folder.rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
    ]


@pytest.mark.parametrize("folder", FIRST_WORDS)
def test_no_docstring_begins_with_a_word_that_needs_the_code_beside_it(checkout: Path, folder: str) -> None:
    found = []
    for place, text in docstrings_below(checkout / folder):
        first = re.match(r"\W*([\w'-]*)", text)
        if first is not None and first[1] in FIRST_WORDS[folder]:
            found.append(f"{place}: {text.strip().splitlines()[0]}")
    assert not found, "begin with what the thing is or does:\n" + "\n".join(found)


@pytest.mark.parametrize("folder", ["sweeps", "src"])
def test_a_docstring_names_the_action_and_not_that_something_is_taken_in(checkout: Path, folder: str) -> None:
    found = [
        f"{place}: {text.strip().splitlines()[0]}"
        for place, text in docstrings_below(checkout / folder)
        if HABITS.match(text) and not text.strip().startswith(tuple(PLAIN))
    ]
    assert not found, "say record, handle, apply, add or learn:\n" + "\n".join(found)


@pytest.mark.parametrize("folder", ["sweeps", "src"])
def test_each_argument_of_a_docstring_stands_on_a_line_below_its_section(checkout: Path, folder: str) -> None:
    found = [place for place, text in docstrings_below(checkout / folder) if SECTION_AS_SENTENCE.search(text)]
    assert not found, "put a line break after the section's name and each argument:\n" + "\n".join(found)
