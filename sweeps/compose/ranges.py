"""Ranges in Hydra's extended override grammar, as distributions: ``train.lr=tag(log, interval(1e-5, 1e-2))``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, RangeSweep

from sweeps.errors import ConfigError

TAGS = {"log", "ordinal"}


def distribution_of_range(
    override: Override, options: Sequence[str] | None, whole: Callable[[], bool]
) -> dict[str, Any]:
    """The distribution that a range means, in the form that YAML has it.

    ============================  ======================================================================================
    ``choice(a, b)``, ``a,b``     categorical; the names of options, for a group
    ``tag(ordinal, choice(...))`` ordinal, in this order, which ``sort(...)`` makes ascending (``reverse=true``: not)
    ``interval(a, b)``            real; whole where the config's value is and both ends are, or with ``int(...)``
    ``range(start, stop, step)``  in steps, without ``stop``, as in Python; whole where all three are
    ``glob(*)``                   categorical: those of a group's options
    ``tag(log, ...)``             the logarithm of an interval, or of a range in steps of 1, is sampled
    ============================  ======================================================================================

    The order of a categorical and of a range means nothing, so there ``shuffle`` and ``sort`` change nothing.

    Args:
        override: A parsed override for which ``is_sweep_override()`` holds.
        options: Options of the group, if the key names one.
        whole: Whether the config's value is a whole number; asked for an interval with whole ends.

    Raises:
        ConfigError: A tag or form that has no meaning as a distribution.
    """
    sweep: Any = override.value()  # Hydra's annotation leaves Glob out
    if isinstance(sweep, Glob):
        return _of_glob(override, sweep, options)
    assert isinstance(sweep, ChoiceSweep | RangeSweep | IntervalSweep)
    unknown = sorted(set(sweep.tags) - TAGS)
    if unknown:
        raise ConfigError(f"{override.input_line}: unknown tag {', '.join(unknown)}; the tags are log and ordinal")
    log, ordinal = "log" in sweep.tags, "ordinal" in sweep.tags
    if isinstance(sweep, ChoiceSweep):
        if log:
            raise ConfigError(f"{override.input_line}: choices have no logarithm; use tag(log, interval(low, high))")
        if ordinal and sweep.shuffle:
            raise ConfigError(f"{override.input_line}: ordinal choices have an order; drop shuffle")
        return {"type": "ordinal" if ordinal else "categorical", "choices": [_plain(each) for each in sweep.list]}
    if ordinal:
        raise ConfigError(f"{override.input_line}: numbers have their order; ordinal is for choice(...), drop the tag")
    if isinstance(sweep, RangeSweep):
        return {**_of_range(override, sweep), "log": log}
    low, high = sweep.start, sweep.end
    assert low is not None and high is not None
    # Hydra makes the ends of every interval real, unless it is cast: int(interval(1, 5)).
    cast = isinstance(low, int)
    if cast or (low.is_integer() and high.is_integer() and whole()):
        return {"type": "int", "low": int(low), "high": int(high), "log": log}
    return {"type": "float", "low": low, "high": high, "log": log}


def _of_glob(override: Override, glob: Glob, options: Sequence[str] | None) -> dict[str, Any]:
    key = override.key_or_group
    if options is None:
        raise ConfigError(f"{override.input_line}: glob chooses among a group's options, and {key} is no group")
    chosen = glob.filter(list(options))
    if not chosen:
        raise ConfigError(f"{override.input_line}: matches none of {key}'s options; there is {', '.join(options)}")
    return {"type": "categorical", "choices": chosen}


def _of_range(override: Override, sweep: RangeSweep) -> dict[str, Any]:
    start, stop, step = sweep.start, sweep.stop, sweep.step
    assert start is not None and stop is not None  # the grammar gives ``range(stop)`` as start=0
    # As many values as Python's range would give; the tolerance is for real steps.
    count = math.ceil((stop - start) / step - 1e-9) if step != 0 else 0
    if count <= 0:
        raise ConfigError(
            f"{override.input_line}: the range is empty; give start < stop and a positive step, or start > stop and a "
            "negative one"
        )
    if count == 1 and not (isinstance(start, int) and isinstance(stop, int)):
        raise ConfigError(
            f"{override.input_line}: has the one value {start}, in steps of {step}; give a step, or search all numbers "
            f"between with interval({start}, {stop})"
        )
    low, high = sorted((start, start + (count - 1) * step))
    whole = all(isinstance(each, int) for each in (start, stop, step))
    return {"type": "int" if whole else "float", "low": low, "high": high, "step": abs(step)}


def _plain(value: Any) -> Any:
    """Hydra keeps quoted strings as objects, also those within lists and mappings."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
    return getattr(value, "text", value)
