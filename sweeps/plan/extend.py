"""Changes that ``extend`` may make to a sweep: more trials, longer trials, a wider space."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from sweeps.compose import Composition
from sweeps.compose.overrides import parse_values
from sweeps.compose.schema_errors import knows
from sweeps.config.schedulers import AutomaticScheduler, FreezeThawScheduler, HyperbandScheduler
from sweeps.config.search import Search, Stop
from sweeps.config.space import Distribution, OrdinalDistribution
from sweeps.errors import ConfigError, raise_mistakes
from sweeps.folders.driver_lock import driver_was_killed
from sweeps.search.schedulers.trial_length import hyperband_range, longest_trial
from sweeps.space.distributions import boundary_values, contains
from sweeps.space.space import Space
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.wording import counted
from sweeps.tracking.control_channel import send_request
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config_checks import lookup_in
from sweeps.validate.search_checks import search_mistakes

STOP = TypeAdapter(Stop)
CHANGEABLE_WHILE_RUNNING = {
    "search.num_trials",
    "search.max_concurrent",
    "search.max_retries",
    "search.confirm",
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
"""Keys that may be changed at any time."""
LENGTH = {"train.max_steps", "train.epochs"}
"""Keys of the length of a trial; with a larger value, finished trials continue."""
CHANGEABLE = CHANGEABLE_WHILE_RUNNING | LENGTH | {"scaling.trials_per_group"}
"""Keys that may be changed while the sweep does not run. A trial that shares its workers continues from its checkpoint
beside any other trials."""
CHANGEABLE_FIELDS = {"low", "high", "choices"}
"""Fields of a distribution that may be changed."""
FIXED_LENGTH_SCHEDULERS = ("hyperband", "pbt", "pb2")
"""Schedulers with which the length of a trial cannot be changed."""

Changes = Mapping[str, Any]
"""Values by dotted path."""


def read_changes(tokens: Sequence[str]) -> dict[str, Any]:
    """Parse the changes for ``extend``.

    Raises:
        ConfigError: A token is not ``key=value``, or its key cannot be changed.
    """
    changes = parse_values(tokens)
    check_changes(changes)
    return changes


def check_changes(changes: Changes) -> None:
    """Check that ``extend`` may change these keys.

    Raises:
        ConfigError: A key cannot be changed.
    """
    for key, value in changes.items():
        if key not in CHANGEABLE and not _is_in_space(key):
            misspelt = "" if knows(key) else did_you_mean(key, CHANGEABLE)
            raise ConfigError(
                f"{key}={value}: extend can change search.num_trials, search.max_concurrent, search.max_retries, "
                f"search.confirm, search.stop.*, train.max_steps, train.epochs, scaling.trials_per_group, and low, "
                f"high or choices of space.PATH{misspelt}; for other changes run a new sweep with search.warm_start"
            )


def check_running(changes: Changes) -> None:
    """Check that these keys may be changed while the sweep runs.

    Raises:
        ConfigError: A key cannot be changed while the sweep runs.
    """
    if later := [key for key in changes if key not in CHANGEABLE_WHILE_RUNNING]:
        raise ConfigError(
            f"{', '.join(later)}: cannot be changed while the sweep runs; end it with `python -m sweeps stop`, "
            "then extend it"
        )


def ask_driver(record: SweepRecord, folder: Path, changes: Changes) -> str | None:
    """Ask the driver of a running sweep to extend it; return its answer, or None if the sweep has ended.

    Raises:
        UserError: A key cannot be changed while the sweep runs, or the driver refuses or does not answer.
    """
    if record.status != "running" or driver_was_killed(folder):
        return None
    check_running(changes)  # here, too: choices can be longer than a request may be
    return send_request(record, {"verb": "extend", "changes": dict(changes)})


def extended(before: Composition, changes: Changes, record: SweepRecord) -> Composition:
    """Return the composition of an extended sweep.

    Raises:
        ConfigError: The changes make the sweep invalid or smaller.
    """
    plain = {key: value for key, value in changes.items() if not _is_in_space(key)}
    composition = before.changed(plain, _widened(before, changes))
    _check_more_trials(before.config.search, composition.config.search, record.sweep)
    for path, distribution in composition.config.space.items():
        _check_wider(path, before.config.space[path], distribution, before.searched_groups)
    if composition.config.space != before.config.space:
        _check_search(before, composition)
    if is_longer(before, composition):
        _check_longer(before, composition, record)
    else:
        _check_same_rungs(before, composition, changes)
    return composition


def _check_search(before: Composition, after: Composition) -> None:
    """Refuse mistakes that the wider space adds; mistakes that an earlier release let the sweep begin with may stay."""

    def mistakes(composition: Composition) -> list[str]:
        return list(search_mistakes(composition, Space(composition.config.space), lookup_in(composition)))

    known = mistakes(before)
    raise_mistakes(line for line in mistakes(after) if line not in known)


def _check_same_rungs(before: Composition, after: Composition, changes: Changes) -> None:
    """Check that the rungs at which a scheduler has decided stay the same, if they depend on the longest trial."""
    if _ends_of_rungs(before) != _ends_of_rungs(after):
        what = ", ".join(f"{key}={value}" for key, value in changes.items() if _is_in_space(key))
        kind = after.config.search.scheduler.kind
        raise ConfigError(
            f"{what}: the rungs of search.scheduler.kind={kind} depend on the longest trial in the space; run a new "
            "sweep with search.warm_start"
        )


def _ends_of_rungs(composition: Composition) -> tuple[float | None, ...]:
    """Return the positions of a scheduler's rungs that depend on the longest trial; empty if none do."""
    space, lookup = Space(composition.config.space), lookup_in(composition)
    match composition.config.search.scheduler:
        case HyperbandScheduler():
            return hyperband_range(composition, space, lookup)
        case AutomaticScheduler() | FreezeThawScheduler() as thawing:
            return (thawing.longest or longest_trial(composition, space, thawing.resource, lookup),)
    return ()


def is_longer(before: Composition, after: Composition) -> bool:
    """Whether trials have become longer, so that finished ones continue."""
    length, now = before.config.loop, after.config.loop
    return length is not None and now is not None and (length.max_steps, length.epochs) != (now.max_steps, now.epochs)


def describe_search(search: Search) -> str:
    """Describe the limits of a search in one line."""
    stop = STOP.dump_python(search.stop, exclude_none=True, exclude_defaults=True)
    rules = "".join(f", {name}={value}" for name, value in stop.items())
    return f"up to {counted(search.num_trials, 'trial')}{rules}"


def _is_in_space(key: str) -> bool:
    return key.startswith("space.") and key.rpartition(".")[2] in CHANGEABLE_FIELDS


def _widened(before: Composition, changes: Changes) -> dict[str, Any]:
    """Return the changed space in the schema's form."""
    space: dict[str, Any] = before.config.as_document()["space"]
    for key, value in changes.items():
        if _is_in_space(key):
            path, _, name = key.removeprefix("space.").rpartition(".")
            if path not in space:
                raise ConfigError(f"{key}={value}: {path} is not searched{did_you_mean(path, space)}")
            space[path][name] = value
    return space


def _check_more_trials(before: Search, after: Search, sweep: str) -> None:
    if after.num_trials < before.num_trials:
        raise ConfigError(
            f"search.num_trials={after.num_trials}: is the total, of which {sweep} already has {before.num_trials}; "
            f"for {after.num_trials} more, write search.num_trials={before.num_trials + after.num_trials}"
        )


def _check_wider(path: str, before: Distribution, after: Distribution, groups: Collection[str]) -> None:
    if before == after:
        return
    if path in groups:
        raise ConfigError(f"space.{path}: {path} is a config group, whose options cannot change; run a new sweep")
    changed = {each.name for each in fields(before) if getattr(before, each.name) != getattr(after, each.name, None)}
    if (
        changed <= CHANGEABLE_FIELDS
        and _in_order(before, after)
        and all(contains(after, value) for value in _deciding_values(before))
    ):
        return
    raise ConfigError(
        f"space.{path}: extend needs a range that includes the old one ({_describe(before)}); for another range "
        "run a new sweep with search.warm_start"
    )


def _in_order(before: Distribution, after: Distribution) -> bool:
    """Whether ordinal choices keep their order."""
    if not isinstance(before, OrdinalDistribution) or not isinstance(after, OrdinalDistribution):
        return True
    return [choice for choice in after.choices if choice in before.choices] == before.choices


def _deciding_values(distribution: Distribution) -> list[Any]:
    """Return values of a range that decide whether another one includes it: every choice, or both ends; with a step
    also the second value."""
    values = boundary_values(distribution)
    step = getattr(distribution, "step", None)
    return values if step is None or len(values) < 2 else [*values, values[0] + step]


def _describe(distribution: Distribution) -> str:
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return f"choices {choices}"
    return ", ".join(
        f"{name} {getattr(distribution, name)}" for name in ("low", "high", "step") if hasattr(distribution, name)
    )


def _length_of(composition: Composition) -> str:
    """Return the length of a composition's trials as an override."""
    loop = composition.config.loop
    assert loop is not None
    return f"train.max_steps={loop.max_steps}" if loop.max_steps is not None else f"train.epochs={loop.epochs}"


def _check_longer(before: Composition, after: Composition, record: SweepRecord) -> None:
    """Check that trials can continue: a longer training must pass through the states that the shorter one has reached,
    also for a scheduler that compares later trials with a pruned one."""
    config, (old, new) = after.config, (before.config.loop, after.config.loop)
    what = _length_of(after)
    assert old is not None
    assert new is not None
    kind = config.search.scheduler.kind
    if kind in FIXED_LENGTH_SCHEDULERS:
        raise ConfigError(f"{what}: search.scheduler.kind={kind} depends on the length of a trial; run a new sweep")
    if searched := LENGTH & config.space.keys():
        raise ConfigError(f"{what}: {', '.join(searched)} is searched; widen space.{min(searched)} instead")
    for kept, now in ((old.max_steps, new.max_steps), (old.epochs, new.epochs)):
        if (kept is None) != (now is None) or (kept is not None and now is not None and now < kept):
            raise ConfigError(
                f"{what}: this sweep's trials have {_length_of(before)}; extend can only make them longer, in that unit"
            )
    if record.repeats:
        raise ConfigError(
            f"{what}: the repeats of search.confirm have the earlier length; run a new sweep "
            "with search.warm_start, or retrain the best trial"
        )
    for trial in record.trials:
        counts = trial.steps and trial.state != "failed" and not trial.stopped_for_good
        own = after.trial(trial.params).train if counts else None
        if own is not None and (own.schedule != "constant" or own.warmup_fraction):
            raise ConfigError(
                f"{what}: trial {trial.trial} was trained with train.schedule={own.schedule} and "
                f"train.warmup_fraction={own.warmup_fraction:g}, so a longer training would differ from its first step "
                "on; run a new sweep with search.warm_start, or retrain the best trial"
            )
