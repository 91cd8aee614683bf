"""Numbers, nouns and values in what a person reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.config.space import IntDistribution
from sweeps.space.descriptions import describe_condition, describe_distribution
from sweeps.texts.wording import counted, value_text
from sweeps.tracking.values import short

PLURAL = re.compile(r" (\w+ )?(trials|steps|workers|sweeps|points|repeats|nights)\b")
READ = ("driver", "plan", "report", "cli", "tracking", "service", "simulate")
"""Packages whose texts show numbers that may be one."""


def test_one_trial_is_no_trials() -> None:
    assert [counted(number, "trial") for number in (0, 1, 2, 1200)] == [
        "0 trials",
        "1 trial",
        "2 trials",
        "1,200 trials",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (None, "null"), ([True, "a"], '[true, "a"]'), ("True", "True"), (0.1, "0.1"), (3, "3")],
)
def test_a_value_is_written_as_in_its_config(value: object, text: str) -> None:
    assert (value_text(value), short(value)) == (text, text)


def test_conditions_are_written_as_in_a_config() -> None:
    assert describe_condition([True, "sgd"]) == "true or sgd"


def test_a_range_of_whole_numbers_is_described_with_all_their_digits() -> None:
    distribution = IntDistribution(type="int", low=1, high=2**20, step=1048575)
    assert describe_distribution(distribution) == "1 to 1048576, step 1048575"


@pytest.mark.parametrize("package", READ)
def test_no_message_has_a_fixed_plural_after_a_number_that_may_be_one(checkout: Path, package: str) -> None:
    found = [
        f"{path.relative_to(checkout)}:{line}"
        for path in sorted((checkout / "sweeps" / package).rglob("*.py"))
        for line in fixed_plurals(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "write counted(number, 'trial'), or choose the noun by a condition"


def fixed_plurals(source: str) -> Iterator[int]:
    """Lines of f-strings with a number before a plural, but constants and what a condition chooses."""
    tree = ast.parse(source)
    chosen = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.IfExp)
        for branch in (node.body, node.orelse)
        for inner in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr) or id(node) in chosen:
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            is_constant = isinstance(value.value, ast.Name) and value.value.id.isupper()
            if not is_constant and PLURAL.match(str(text.value)):
                yield node.lineno
