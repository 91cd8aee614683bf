"""Ranges in Hydra's extended override grammar, as distributions: ``train.lr=tag(log, interval(1e-5, 1e-2))``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, RangeSweep

from sweeps.errors import ConfigError


def distribution_of_range(override: Override, current: Any, options: Sequence[str] | None) -> dict[str, Any]:
    """The distribution that a range means, in the form that YAML has it.

    ``choice(a, b)`` and ``a,b`` are categorical; ``interval(a, b)`` is real, or whole when both ends are whole and
    the config's value is not real; ``range(start, stop, step)`` leaves out ``stop``, as in Python; ``glob(*)``
    chooses among a group's options. ``tag(log, ...)`` samples the logarithm.

    Args:
        override: A parsed override for which ``is_sweep_override()`` holds.
        current: The config's own value at the path.
        options: Options of the group, if the key names one.

    Raises:
        ConfigError: A tag or form that has no meaning as a distribution.
    """
    key = override.key_or_group
    sweep: Any = override.value()  # Hydra's annotation leaves Glob out
    if isinstance(sweep, Glob):
        if options is None:
            raise ConfigError(f"{override.input_line}: glob chooses among a group's options, and {key} is no group")
        return {"type": "categorical", "choices": sweep.filter(list(options))}
    assert isinstance(sweep, ChoiceSweep | RangeSweep | IntervalSweep)
    unknown = set(sweep.tags) - {"log"}
    if unknown:
        raise ConfigError(f"{override.input_line}: unknown tag {', '.join(sorted(unknown))}; the one tag is log")
    log = "log" in sweep.tags
    if isinstance(sweep, ChoiceSweep):
        if log:
            raise ConfigError(f"{override.input_line}: choices have no logarithm; use tag(log, interval(low, high))")
        return {"type": "categorical", "choices": [_plain(each) for each in sweep.list]}
    if isinstance(sweep, RangeSweep):
        return {**_of_range(override, sweep), **({"log": True} if log else {})}
    low, high = sweep.start, sweep.end
    whole = {type(low), type(high)} == {int} and not isinstance(current, float)
    return {"type": "int" if whole else "float", "low": low, "high": high, "log": log}


def _of_range(override: Override, sweep: RangeSweep) -> dict[str, Any]:
    start, stop, step = sweep.start or 0, sweep.stop, sweep.step
    assert stop is not None  # the grammar gives ``range(stop)`` as start=0
    # As many values as Python's range would give; the tolerance is for real steps.
    count = math.ceil((stop - start) / step - 1e-9) if step > 0 else 0
    if count <= 0:
        raise ConfigError(f"{override.input_line}: the range is empty; give start < stop and a positive step")
    high = start + (count - 1) * step
    whole = all(isinstance(each, int) for each in (start, stop, step))
    return {"type": "int" if whole else "float", "low": start, "high": high, "step": step}


def _plain(value: Any) -> Any:
    """Hydra keeps quoted strings as objects."""
    return getattr(value, "text", value)
