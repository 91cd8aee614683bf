"""Distributions from ranges in Hydra's override grammar: ``train.lr=tag(log, interval(1e-5, 1e-2))``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, RangeSweep

from sweeps.errors import ConfigError

TAGS = {"log", "ordinal"}


def distribution_of_range(
    override: Override, options: Sequence[str] | None, is_integer: Callable[[], bool]
) -> dict[str, Any]:
    """Return the distribution for a range, in the form of YAML.

    ============================  ======================================================================================
    ``choice(a, b)``, ``a,b``     categorical; the names of options, for a group
    ``tag(ordinal, choice(...))`` ordinal, in this order; ``sort(...)`` sorts it (``reverse=true``: descending)
    ``interval(a, b)``            float; int if the config's value and both ends are integers, or with ``int(...)``
    ``range(start, stop, step)``  in steps, without ``stop``, as in Python; int if all three are integers
    ``glob(*)``                   categorical: the matching options of a group
    ``tag(log, ...)``             the logarithm of an interval, or of a range in steps of 1, is sampled
    ============================  ======================================================================================

    ``shuffle`` and ``sort`` have no effect on a categorical, nor ``shuffle`` on a range, whose order has no meaning.

    Args:
        override: A parsed override for which ``is_sweep_override()`` holds.
        options: Options of the group, if the key is a group.
        is_integer: Whether the config's value is an integer; called for an interval with integer ends.

    Raises:
        ConfigError: The range has no meaning as a distribution.
    """
    sweep: Any = override.value()  # Hydra's annotation omits Glob
    if isinstance(sweep, Glob):
        return _of_glob(override, sweep, options)
    assert isinstance(sweep, ChoiceSweep | RangeSweep | IntervalSweep)
    unknown = sorted(set(sweep.tags) - TAGS)
    if unknown:
        raise ConfigError(f"{override.input_line}: unknown tag {', '.join(unknown)}; the tags are log and ordinal")
    if isinstance(sweep, ChoiceSweep):
        return _of_choice(override, sweep)
    if "ordinal" in sweep.tags:
        raise ConfigError(
            f"{override.input_line}: numbers have their order; ordinal is for choice(...); remove the tag"
        )
    numbers = _of_range(override, sweep) if isinstance(sweep, RangeSweep) else _of_interval(sweep, is_integer)
    return {**numbers, "log": "log" in sweep.tags}


def _of_choice(override: Override, sweep: ChoiceSweep) -> dict[str, Any]:
    ordinal = "ordinal" in sweep.tags
    if "log" in sweep.tags:
        raise ConfigError(f"{override.input_line}: choices have no logarithm; use tag(log, interval(low, high))")
    if ordinal and sweep.shuffle:
        raise ConfigError(f"{override.input_line}: ordinal choices have an order; remove shuffle")
    return {"type": "ordinal" if ordinal else "categorical", "choices": [_plain(each) for each in sweep.list]}


def _of_interval(sweep: IntervalSweep, is_integer: Callable[[], bool]) -> dict[str, Any]:
    low, high = sweep.start, sweep.end
    assert low is not None and high is not None
    # Hydra converts the ends of every interval to float, unless it is cast: int(interval(1, 5)).
    if isinstance(low, int) or (low.is_integer() and high.is_integer() and is_integer()):
        return {"type": "int", "low": int(low), "high": int(high)}
    return {"type": "float", "low": low, "high": high}


def _of_glob(override: Override, glob: Glob, options: Sequence[str] | None) -> dict[str, Any]:
    key = override.key_or_group
    if options is None:
        raise ConfigError(f"{override.input_line}: glob selects options of a group, and {key} is not a group")
    chosen = glob.filter(list(options))
    if not chosen:
        raise ConfigError(f"{override.input_line}: matches none of {key}'s options; they are {', '.join(options)}")
    return {"type": "categorical", "choices": chosen}


def _of_range(override: Override, sweep: RangeSweep) -> dict[str, Any]:
    start, stop, step = sweep.start, sweep.stop, sweep.step
    assert start is not None and stop is not None  # the grammar reads ``range(stop)`` as start=0
    if re.search(r"\bsort\(", str(override.input_line)):  # Hydra 1.3 moves the values of a descending range
        raise ConfigError(f"{override.input_line}: numbers have their order; remove sort")
    if not all(map(math.isfinite, (start, stop, step))):
        raise ConfigError(f"{override.input_line}: start, stop and step must be finite; give other numbers")
    # In decimals as they are typed: as floats, 0.7 + 0.1 is less than 0.8.
    first, end, by = (Decimal(str(each)) for each in (start, stop, step))
    count = math.ceil((end - first) / by) if by else 0
    if count <= 0:
        raise ConfigError(
            f"{override.input_line}: the range is empty; give start < stop and a positive step, or start > stop and a "
            "negative one"
        )
    if count == 1 and not (isinstance(start, int) and isinstance(stop, int)):
        raise ConfigError(
            f"{override.input_line}: has only the value {start}, in steps of {step}; give a smaller step, or search "
            f"all numbers with interval({start}, {stop})"
        )
    whole = all(isinstance(each, int) for each in (start, stop, step))
    number: type[int] | type[float] = int if whole else float
    low, high = sorted((first, first + (count - 1) * by))
    return {"type": number.__name__, "low": number(low), "high": number(high), "step": abs(step)}


def _plain(value: Any) -> Any:
    """Return a value with Hydra's objects for quoted strings replaced by plain strings, including those in lists and
    mappings."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
    return getattr(value, "text", value)
