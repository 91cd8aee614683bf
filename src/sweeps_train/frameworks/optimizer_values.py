"""Optimizer values that change when a trial continues, such as a learning rate under PBT.

A checkpoint holds the optimizer's former values, and a framework that loads it would continue with these instead of the
trial's new ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Values = list[dict[str, Any]]
"""Values of each parameter group of an optimizer by name; ``lr`` is the rate before the schedule is applied, as a
number: a tensor would change with the optimizer's, and is not for JSON. None if the optimizer computes it."""

LIMITS = ("eta_min", "max_lrs", "min_lrs")
"""Attributes of torch's schedules with the lowest or highest rate, which checkpoints hold as well."""


def configured_values(optimizer: Optimizer) -> Values:
    """Return the values with which an optimizer was created."""
    return [
        {
            **{name: value for name, value in group.items() if _is_numeric(value)},
            "lr": None if rate is None else float(rate),
        }
        for group in optimizer.param_groups
        for rate in (group.get("initial_lr", group["lr"]),)
    ]


def configured_limits(scheduler: Any) -> Values:
    """Return the minimum and maximum rates with which a schedule was created, then those of each schedule inside it."""
    return [
        {name: copy(value) for name, value in vars(each).items() if name in LIMITS}
        for each in _with_contained(scheduler)
    ]


def apply_changed_limits(scheduler: Any, before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> None:
    """Set the limits that the trial has changed in a restored schedule, as ``apply_changes`` does with an optimizer."""
    for each, old, new in zip(_with_contained(scheduler), before, now, strict=False):
        vars(each).update({name: copy(value) for name, value in new.items() if old.get(name, value) != value})


def apply_changes(
    optimizer: Optimizer,
    schedulers: Iterable[Any],
    before: Sequence[Mapping[str, Any]],
    now: Sequence[Mapping[str, Any]],
) -> None:
    """Set the values that the trial has changed in a restored optimizer, and leave the others as in the checkpoint.
    ``before`` are those with which the optimizer in the checkpoint was made, ``now`` those of this trial, for the same
    parameter groups; groups that were added later follow these. Schedules continue at their current position."""
    for index, (group, old, new) in enumerate(zip(optimizer.param_groups, before, now, strict=False)):
        group |= {
            name: value
            for name, value in new.items()
            if name not in ("lr", "initial_lr") and old.get(name, value) != value
        }
        if old["lr"] == new["lr"] or not old["lr"] or new["lr"] is None:
            continue
        group["lr"] *= new["lr"] / old["lr"]
        if "initial_lr" in group:
            group["initial_lr"] = new["lr"]
        for scheduler in (each for given in schedulers for each in _with_contained(given)):
            if hasattr(scheduler, "base_lrs"):
                scheduler.base_lrs[index] = new["lr"]


def _is_numeric(value: Any) -> bool:
    """Whether a value is a number or a tuple of numbers, which every framework's checkpoint can have."""
    return all(isinstance(each, int | float) for each in (value if isinstance(value, tuple) else (value,)))


def _with_contained(scheduler: Any) -> Iterator[Any]:
    """Yield a schedule, and all schedules in it if it is a sequence of some."""
    yield scheduler
    for values in vars(scheduler).values():
        for each in values if isinstance(values, list) else ():
            if isinstance(each, LRScheduler):
                yield from _with_contained(each)
