"""Values and counts in messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def value_text(value: Any) -> str:
    """Return a value in the notation of a config's YAML and the command line; strings have no quotes.

    >>> value_text(True), value_text([1, None]), value_text("adamw")
    ('true', '[1, null]', 'adamw')
    """
    return value if isinstance(value, str) else json.dumps(value, default=str)


def amount(number: float, units: str) -> str:
    """Return an amount with its units.

    >>> amount(1.0, "evaluations"), amount(2.5, "epochs")
    ('1 evaluation', '2.5 epochs')
    """
    return f"{number:g} {units.removesuffix('s') if number == 1 else units}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "trial"), counted(1200, "trial")
    ('1 trial', '1,200 trials')
    """
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def counted_states(counts: Mapping[str, int]) -> str:
    """Return the number of trials in each state that has any; empty if there are none.

    >>> counted_states({"finished": 1200, "pruned": 1, "failed": 0})
    '1,200 finished, 1 pruned'
    """
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def no_finite_value(metrics: Iterable[str]) -> str:
    """Describe a trial whose reports all have NaN or infinity for an objective, or lack one."""
    first, *others = metrics
    if others:
        return f"reported at no step finite values of {' and '.join([first, *others])}"
    return f"reported no finite {first}"
