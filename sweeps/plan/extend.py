"""What ``extend`` may change of a sweep: how far it goes, how long its trials are, how wide its space is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sweeps.compose import Composition
from sweeps.compose.overrides import parse_values
from sweeps.config import SWEEP_CONFIG
from sweeps.config.search import HyperbandScheduler, Search, Stop
from sweeps.config.space import Distribution, OrdinalDistribution
from sweeps.errors import ConfigError
from sweeps.folder import has_died
from sweeps.search.schedulers.trial_length import hyperband_range
from sweeps.space.distributions import Space, boundary_values, contains
from sweeps.suggestions import did_you_mean
from sweeps.tracking.control_channel import send_request
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config import lookup_in

STOP = TypeAdapter(Stop)
WHILE_IT_RUNS = {
    "search.num_trials",
    "search.max_concurrent",
    "search.max_retries",
    "search.stop.wall_hours",
    "search.stop.gpu_hours",
    "search.stop.cost",
    "search.stop.cost.limit",
    "search.stop.cost.per_gpu_hour",
    "search.stop.cost.per_cpu_hour",
    "search.stop.target",
    "search.stop.plateau",
    "search.stop.plateau.trials",
    "search.stop.plateau.min_change",
    "search.stop.expected_improvement",
}
"""What may be changed at any time."""
LENGTH = {"train.max_steps", "train.epochs"}
"""With these, finished trials go on."""
OF_A_RANGE = {"low", "high", "choices"}
"""What may be changed of a distribution."""
COUNTED_FROM_THE_LENGTH = ("hyperband", "pbt", "pb2")
"""Schedulers for which a trial that has ended cannot become a longer one."""

Changes = Mapping[str, Any]
"""Values by dotted path."""


def read_changes(tokens: Sequence[str]) -> dict[str, Any]:
    """What ``extend`` is asked to change.

    Raises:
        ConfigError: A token is no ``key=value``, or names what cannot be changed.
    """
    changes = parse_values(tokens)
    check_changes(changes)
    return changes


def check_changes(changes: Changes) -> None:
    """
    Raises:
        ConfigError: Something cannot be changed.
    """
    for key, value in changes.items():
        if key not in WHILE_IT_RUNS | LENGTH and not _is_of_the_space(key):
            raise ConfigError(
                f"{key}={value}: extend changes how far a sweep goes: search.num_trials, search.max_concurrent, "
                f"search.max_retries, search.stop.*, train.max_steps, train.epochs, and a space.PATH.low, high or "
                f"choices{did_you_mean(key, WHILE_IT_RUNS | LENGTH)}; for anything else run a new sweep, with "
                "search.warm_start"
            )


def check_running(changes: Changes) -> None:
    """
    Raises:
        ConfigError: Something cannot be changed while the sweep runs.
    """
    if later := [key for key in changes if key not in WHILE_IT_RUNS]:
        raise ConfigError(
            f"{', '.join(later)}: cannot be changed while the sweep runs; end it with `python -m sweeps stop`, and "
            "extend it then"
        )


def ask_driver(record: SweepRecord, folder: Path, changes: Changes) -> str | None:
    """Tell the driver of a sweep that runs to go further; what it answers, or None if none does: the sweep has ended.

    Args:
        record: The sweep, as it is recorded now.
        folder: Its folder.
        changes: Values by dotted path.

    Raises:
        UserError: The driver refuses, or does not answer.
    """
    if record.status != "running" or has_died(folder):
        return None
    return send_request(record, {"verb": "extend", "changes": dict(changes)})


def extended(before: Composition, changes: Changes, record: SweepRecord) -> Composition:
    """The composition of a sweep that goes further.

    Args:
        before: Of the sweep as it is.
        changes: Values by dotted path.
        record: Its trials so far.

    Raises:
        ConfigError: The changes make no valid sweep, or less of one.
    """
    plain = {key: value for key, value in changes.items() if not _is_of_the_space(key)}
    composition = before.changed(plain, _widened(before, changes))
    _check_more_trials(before.config.search, composition.config.search, record.sweep)
    for path, distribution in composition.config.space.items():
        _check_wider(path, before.config.space[path], distribution, before.searched_groups)
    if is_longer(before, composition):
        _check_longer(before, composition, record)
    _check_same_rungs(before, composition, changes)
    return composition


def _check_same_rungs(before: Composition, after: Composition, changes: Changes) -> None:
    """Hyperband's decisions so far were made at rungs that follow from the longest trial that the space can make."""
    if not isinstance(after.config.search.scheduler, HyperbandScheduler):
        return
    was, now = (hyperband_range(each, Space(each.config.space), lookup_in(each)) for each in (before, after))
    if was != now:
        what = ", ".join(f"{key}={value}" for key, value in changes.items() if _is_of_the_space(key))
        raise ConfigError(
            f"{what}: search.scheduler.kind=hyperband counts from the longest trial that the space can make; run a new "
            "sweep, with search.warm_start"
        )


def is_longer(before: Composition, after: Composition) -> bool:
    """Whether trials have another length, with which finished ones go on."""
    length, now = before.config.train, after.config.train
    return length is not None and now is not None and (length.max_steps, length.epochs) != (now.max_steps, now.epochs)


def describe_search(search: Search) -> str:
    """How far a search goes, in one line."""
    stop = STOP.dump_python(search.stop, exclude_none=True, exclude_defaults=True)
    rules = "".join(f", {name}={value}" for name, value in stop.items())
    return f"up to {search.num_trials} trials{rules}"


def _is_of_the_space(key: str) -> bool:
    return key.startswith("space.") and key.rpartition(".")[2] in OF_A_RANGE


def _widened(before: Composition, changes: Changes) -> dict[str, Any]:
    """The space as the schema reads it."""
    space: dict[str, Any] = SWEEP_CONFIG.dump_python(before.config, mode="json", by_alias=True)["space"]
    for key, value in changes.items():
        if _is_of_the_space(key):
            path, _, name = key.removeprefix("space.").rpartition(".")
            if path not in space:
                raise ConfigError(f"{key}={value}: {path} is not searched{did_you_mean(path, space)}")
            space[path][name] = value
    return space


def _check_more_trials(before: Search, after: Search, sweep: str) -> None:
    if after.num_trials < before.num_trials:
        raise ConfigError(
            f"search.num_trials={after.num_trials}: {sweep} has {before.num_trials} already; extend takes a larger "
            "number"
        )


def _check_wider(path: str, before: Distribution, after: Distribution, groups: Collection[str]) -> None:
    if before == after:
        return
    if path in groups:
        raise ConfigError(
            f"space.{path}: {path} is a config group, and its options are part of the sweep; run a new one"
        )
    changed = {each.name for each in fields(before) if getattr(before, each.name) != getattr(after, each.name, None)}
    if changed <= OF_A_RANGE and _in_order(before, after) and all(contains(after, value) for value in _telling(before)):
        return
    raise ConfigError(
        f"space.{path}: extend takes a range that has all of the old one in it ({_described(before)}); for another one "
        "run a new sweep, with search.warm_start"
    )


def _in_order(before: Distribution, after: Distribution) -> bool:
    """Whether ordered choices are still ordered so."""
    if not isinstance(before, OrdinalDistribution) or not isinstance(after, OrdinalDistribution):
        return True
    return [choice for choice in after.choices if choice in before.choices] == before.choices


def _telling(distribution: Distribution) -> list[Any]:
    """Values that decide whether another range has all of this one: every choice, or both ends, and with a step the
    one after the first."""
    values = boundary_values(distribution)
    step = getattr(distribution, "step", None)
    return values if step is None or len(values) < 2 else [*values, values[0] + step]


def _described(distribution: Distribution) -> str:
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return f"choices {choices}"
    return ", ".join(
        f"{name} {getattr(distribution, name)}" for name in ("low", "high", "step") if hasattr(distribution, name)
    )


def _check_longer(before: Composition, after: Composition, record: SweepRecord) -> None:
    """Finished trials go on from where they ended: that must be where a longer training would have been."""
    config, train = after.config, after.config.train
    assert train is not None
    assert before.config.train is not None
    what = f"train.max_steps={train.max_steps}" if train.max_steps is not None else f"train.epochs={train.epochs}"
    kind = config.search.scheduler.kind
    if kind in COUNTED_FROM_THE_LENGTH:
        raise ConfigError(f"{what}: search.scheduler.kind={kind} counts from the length of a trial; run a new sweep")
    if searched := LENGTH & config.space.keys():
        raise ConfigError(f"{what}: {', '.join(searched)} is searched; widen space.{min(searched)} instead")
    for kept, now in ((before.config.train.max_steps, train.max_steps), (before.config.train.epochs, train.epochs)):
        if (kept is None) != (now is None) or (kept is not None and now is not None and now < kept):
            raise ConfigError(
                f"{what}: extend takes a larger number of what the sweep has; its trials have {kept or now}"
            )
    for trial in record.trials:
        own = after.trial(trial.params).train if trial.state == "finished" else None
        if own is not None and (own.schedule != "constant" or own.warmup_fraction):
            raise ConfigError(
                f"{what}: trial {trial.trial} was trained with train.schedule={own.schedule} and "
                f"train.warmup_fraction={own.warmup_fraction:g}, so that a longer training would have been another one "
                "from its first step on; run a new sweep with search.warm_start, or retrain the best"
            )
