"""Checks of a whole sweep beyond the schema: keys that do not fit together. Begin with ``check_sweep``."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from sweeps.compose import Composition, Variant
from sweeps.compose.dotted import MISSING, find, leaves
from sweeps.config import IGNORED_SECTIONS, SWEEP_SECTIONS, SweepConfig
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.errors import ConfigError, mistakes_of, raise_mistakes
from sweeps.space.constraints import Constraints
from sweeps.space.distributions import satisfies
from sweeps.space.initial_points import InitialPoints
from sweeps.space.space import Lookup, Space
from sweeps.texts.suggestions import did_you_mean
from sweeps.validate.model_checks import check_bitsandbytes, check_float8, check_model_on_data, check_samples
from sweeps.validate.scaling_checks import check_elastic, check_lanes, lane_mistakes
from sweeps.validate.search_checks import search_mistakes
from sweeps.validate.stage_checks import rescaling_mistakes
from sweeps.validate.storage_checks import storage_mistakes
from sweeps.validate.strategy_checks import check_strategy
from sweeps_train.config import Train
from sweeps_train.config.process import process_environment

FIRST_CHECKED, MAX_CHECKED = 8, 200
"""Number of values that are checked in each range of whole numbers, and in a range that has an invalid one among these.
A check takes about a millisecond."""
NAMED = 3
"""Maximum number of invalid values that a note names."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


Approve = Callable[[Composition], None]
"""Check of a sweep that is run for another user; raises ``ConfigError`` to refuse it."""


def check_sweep(composition: Composition, approve: Approve | None = None, *, is_new: bool = True) -> Space:
    """Check a whole sweep, and return its space.

    Args:
        composition: The sweep.
        approve: Called before anything else, so that a refused sweep accesses neither code nor files.
        is_new: Whether the sweep is new, so that the user can still change it. In a sweep that continues, points that
            cannot train or break a constraint are accepted, since they start no worker, and so is what was no mistake
            when it began.

    Raises:
        ConfigError: The message has every mistake, one per line.
    """
    if approve is not None:
        for each in (composition, *map(composition.in_stage, range(1, 1 + len(composition.stages)))):
            approve(each)
    mistakes = _Mistakes()
    config, lookup = composition.config, lookup_in(composition)
    mistakes.collect(check_training, config)
    space = mistakes.collect(Space, config.space)
    if space is not None:
        mistakes.collect(_check_paths, composition, space, mistakes, is_new)
        points = InitialPoints(composition, space, Constraints(composition), lookup)
        if is_new:
            mistakes.collect(_check_same_for_values, points, mistakes)
        mistakes.collect(_check_values, points, mistakes)
        mistakes.add(*search_mistakes(composition, space, lookup, is_new=is_new))
        mistakes.add(*_rescaling(composition, space), *storage_mistakes(composition))
        if not mistakes.lines:  # constraints are computed on valid trials only
            mistakes.add(*lane_mistakes(composition, space, lookup))
            if is_new:
                mistakes.add(*points.mistakes())
                _check_points(composition, points, mistakes)
                mistakes.add(*_mistakes_between_ends(points))
        if not mistakes.lines:  # every stage would repeat them
            mistakes.collect(_check_stages, composition, is_new)
    raise_mistakes(mistakes.lines)
    assert space is not None
    return space


def _rescaling(composition: Composition, space: Space) -> Iterator[str]:
    """Yield the mistakes in rescaling values between stages, one per line."""
    search = composition.config.search
    if any(stage.rescale for stage in search.stages):
        yield from rescaling_mistakes(search, space, phases_of(composition))


def phases_of(composition: Composition) -> list[Mapping[str, Any]]:
    """Return the config of each stage of a sweep, and of the sweep itself."""
    phases = (*map(composition.in_stage, range(1, 1 + len(composition.stages))), composition)
    return [each.config.as_values() for each in phases]


def _check_stages(composition: Composition, is_new: bool) -> None:
    """Check the sweep of each stage, whose trials are cheaper.

    Raises:
        ConfigError: The message has every mistake that the sweep itself does not have, one per line.
    """
    raise_mistakes(
        f"search.stages.{index}: {line}"
        for index in range(len(composition.stages))
        for line in mistakes_of(check_sweep, composition.in_stage(index + 1), is_new=is_new)
    )


def check_training(config: SweepConfig) -> None:
    """Check that a config can be trained: the sweep's own, or that of a trial.

    Raises:
        ConfigError: Some values exclude each other.
    """
    check_lanes(config)
    train = config.loop
    if train is None:
        check_elastic(config)
        return
    check_strategy(config)
    check_elastic(config)
    check_model_on_data(config)
    check_samples(config, train)
    _check_numerics(config, train)
    check_bitsandbytes(config, train)
    check_float8(config, train)
    every, kind = config.checkpoint.every, config.search.scheduler.kind
    if config.search.must_pause and not config.checkpoint.includes_evaluations(train.eval_every):
        raise ConfigError(
            f"checkpoint.every={every}: search.scheduler.kind={kind} pauses trials at evaluations, each of which needs "
            f"a checkpoint; use null, or a divisor of train.eval_every={train.eval_every}"
        )
    if train.on_divergence == "restore" and not config.checkpoint.includes_evaluations(train.eval_every):
        raise ConfigError(
            f"train.on_divergence=restore: with checkpoint.every={every} the training would go back to before its last "
            f"evaluation; use null, or a divisor of train.eval_every={train.eval_every}"
        )


def _check_numerics(config: SweepConfig, train: Train) -> None:
    """Check the switches for TF32, deterministic algorithms and the allocator, against each other and the workers.

    Raises:
        ConfigError: A switch cannot have an effect, or contradicts another setting.
    """
    if config.scaling.use_gpu is False:
        for name in ("tf32", "expandable_segments"):
            if getattr(train, name):
                raise ConfigError(
                    f"train.{name}=true: is for GPUs, and scaling.use_gpu=false; leave one of them at its default"
                )
    if train.deterministic and train.max_communication_share is not None:
        raise ConfigError(
            f"train.deterministic=true: train.max_communication_share={train.max_communication_share} chooses the "
            "batch by measured times, which differ from run to run; set it and train.max_global_batch_size to null"
        )
    try:
        process_environment(train, os.environ)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def lookup_in(composition: Composition) -> Lookup:
    """Return a function that looks up the sweep's own value at a path; for a group, the option that the config
    chose."""
    values = composition.config.as_values()

    def lookup(path: str) -> Any:
        if path in composition.options:
            return composition.options[path]
        value = find(values, path)
        return None if value is MISSING else value

    return lookup


class _Mistakes:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def collect(
        self, check: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result | None:
        try:
            return check(*args, **kwargs)
        except ConfigError as error:
            self.add(str(error))
            return None

    def add(self, *texts: str) -> None:
        lines = (line for text in texts for line in text.split("\n"))
        self.lines.extend(line for line in lines if line not in self.lines)


def _check_paths(composition: Composition, space: Space, mistakes: _Mistakes, is_new: bool) -> None:
    """Check that every searched path is in the config, for every option of a group under which it is active."""
    variants = {}
    for key in composition.variants:
        options = mistakes.collect(composition.trial, dict(key))
        if options is not None:
            variants[key] = options.as_values()
    lookup = lookup_in(composition)
    for path in space:
        if (mistake := _outside_of_trials(composition, path)) is not None:
            mistakes.add(mistake)
            continue
        if path in composition.searched_groups:
            continue
        _check_conditions(composition, variants, path, mistakes)
        if is_new:
            _check_same_for_options(space, variants, path, mistakes)
        for key, values in variants.items():
            context = space.context(path, lookup)
            reached = context is not None and space.active(path, {**context, **dict(key)}, lookup)
            if reached and not _has(composition, key, values, path, context or {}):
                condition = _condition_hint(path, variants)
                within = "".join(f" when {group} is {option}" for group, option in key) if condition else ""
                hint = condition or _missing_hint(path, values)
                mistakes.add(f"space.{path}: the config has no such value{within}{hint}")
                break


def _outside_of_trials(composition: Composition, path: str) -> str | None:
    """Return the mistake in a searched path that has no effect on a trial; None if it has one."""
    section, kind = re.split("[./]", path)[0], composition.config.task.kind
    if section in SWEEP_SECTIONS:
        return f"space.{path}: belongs to the sweep and not to a trial, so it cannot be searched; remove it"
    if path not in composition.searched_groups and section in IGNORED_SECTIONS.get(kind, ()):
        return (
            f"space.{path}: task.kind={kind} ignores {section}; search task.arguments.NAME, or remove it "
            f"(~space.{path})"
        )
    return None


def _check_conditions(
    composition: Composition, variants: Mapping[Variant, Any], path: str, mistakes: _Mistakes
) -> None:
    """Check that the paths in a parameter's ``when`` exist and can have the required values, so that the parameter can
    be active."""
    own_values, space = composition.config.as_values(), composition.config.space
    for other, wanted in space[path].when.items():
        if other in composition.options:
            continue  # a group, whose options were checked when it was composed
        if other not in space and find(own_values, other) is MISSING:
            hint = did_you_mean(other, [*space, *leaves(own_values, without=SWEEP_SECTIONS)])
            mistakes.add(f"space.{path}.when.{other}: neither the space nor the config has it{hint}")
        if wanted == []:
            mistakes.add(f"space.{path}.when.{other}=[]: {path} would never exist; name one or more values")
        for value in wanted if isinstance(wanted, list) else [wanted]:
            refusal = _refusal(composition, variants, other, value)
            if refusal is not None:
                mistakes.add(f"space.{path}.when.{refusal}")


def _check_same_for_options(space: Space, variants: Mapping[Variant, Any], path: str, mistakes: _Mistakes) -> None:
    """Check that a condition on a value that is not searched gives the same result under all options of the searched
    groups, since the sweep's own config decides it for all trials."""
    for other, wanted in space[path].when.items():
        if other in space.distributions:
            continue
        holds = {
            key: satisfies(find(values, other), wanted)
            for key, values in variants.items()
            if not _is_excluded(space, path, dict(key))
        }
        if len(set(holds.values())) > 1:
            options = " or ".join(
                "{" + ", ".join(f"{group}: {option}" for group, option in key) + "}" for key in holds if holds[key]
            )
            mistakes.add(
                f"space.{path}.when.{other}: depends on a group that is searched; give the options themselves, as in "
                f"when: {options}"
            )


def _check_same_for_values(points: InitialPoints, mistakes: _Mistakes) -> None:
    """Check that each condition on a value that is not searched gives the same result for all searched values, since
    the sweep's own config decides it for all trials."""
    composition, space = points.composition, points.space
    conditions = [
        (path, other, wanted)
        for path in space
        for other, wanted in space[path].when.items()
        if other not in space.distributions and other not in composition.options
        if _may_vary(composition, space, other)
    ]
    for searched, _, corner in space.corners(points.lookup) if conditions else ():
        if searched in composition.searched_groups or not _allows(points, corner):
            continue
        with suppress(ConfigError):  # a mistake in the value, which is reported elsewhere
            own, values = (
                composition.trial(dict(point)).as_values() for point in (composition.variant(corner), corner)
            )
            for path, other, wanted in list(conditions):
                holds = {satisfies(find(each, other), wanted) for each in (own, values)}
                if len(holds) > 1 and not _is_excluded(space, path, corner):
                    conditions.remove((path, other, wanted))
                    mistakes.add(
                        f"space.{path}.when.{other}: depends on {searched}, which is searched; name {searched} itself "
                        "in `when` instead"
                    )


def _may_vary(composition: Composition, space: Space, path: str) -> bool:
    """Whether the value at a path that is not searched may follow from searched values."""
    near = any(path.startswith(f"{each}.") or each.startswith(f"{path}.") for each in space)
    return near or any(composition.derives(dict(key), path) for key in composition.variants)


def _is_excluded(space: Space, path: str, chosen: Mapping[str, Any]) -> bool:
    """Whether a parameter does not exist under these values of others, such as options of the searched groups."""
    return any(
        not satisfies(chosen[other], wanted)
        if other in chosen
        else other in space.distributions and _is_excluded(space, other, chosen)
        for other, wanted in space[path].when.items()
    )


def _refusal(composition: Composition, variants: Mapping[Variant, Any], path: str, value: Any) -> str | None:
    """Return the reason why a path cannot have a value under any options of the searched groups; None if it can, or is
    absent."""
    refusal = None
    for key, values in variants.items():
        if find(values, path) is MISSING:
            continue
        try:
            composition.trial({**dict(key), path: value})
        except ConfigError as error:
            own = [line for line in str(error).split("\n") if line.startswith(f"{path}=")]
            if not own:
                return None
            refusal = own[0]
        else:
            return None
    return refusal


def _has(composition: Composition, key: Variant, values: Any, path: str, context: Mapping[str, Any]) -> bool:
    """Whether trials have a path: in the config of these options, in a searched section above it, or as a new name in a
    mapping with arbitrary names, such as ``model.arguments``."""
    above = [each for each in context if path.startswith(f"{each}.") and each not in composition.searched_groups]
    return _takes(composition, values, dict(key), path) or (
        bool(above) and _takes(composition, None, {**dict(key), **{each: context[each] for each in above}}, path)
    )


def _takes(composition: Composition, values: Any, point: Mapping[str, Any], path: str) -> bool:
    """Whether the config of trials at a point, given as values if it is known, has a path or takes it as a new name."""
    try:
        if values is None:
            values = composition.trial(dict(point)).as_values()
        if find(values, path) is not MISSING:
            return True
        if not isinstance(find(values, path.rpartition(".")[0]), Mapping):
            return False
        composition.trial({**point, path: None})
    except ConfigError:
        return False
    return True


def _condition_hint(path: str, variants: Mapping[Variant, Any]) -> str:
    having = [dict(key) for key, values in variants.items() if find(values, path) is not MISSING]
    if not having or not having[0]:
        return ""
    group, option = next(iter(having[0].items()))
    return f"; add when: {{{group}: {option}}} to it"


def _missing_hint(path: str, values: Mapping[str, Any]) -> str:
    """Return the fix for a searched path that a trial's config does not have."""
    remove = f"remove this range (~space.{path})"
    keys = path.split(".")
    above = (".".join(keys[:count]) for count in range(1, len(keys)))
    null = next((key for key in above if find(values, key) is None), None)
    if null is not None:
        return f"; {null} is null: set it, or {remove}"
    return did_you_mean(path, leaves(values, without=SWEEP_SECTIONS)) or f"; {remove}"


def _check_values(points: InitialPoints, mistakes: _Mistakes) -> None:
    """Check that both ends of every range and every choice make a valid trial, where the constraints allow one."""
    if mistakes.lines:
        return  # they would be repeated for every value
    composition, space = points.composition, points.space
    for path, value, corner in space.corners(points.lookup):
        lines = mistakes_of(_check_point, composition, corner)
        if lines and not _allows(points, corner):
            point = points.allowed_with(corner)
            space.replaced_corners.append((corner, point))
            lines = [] if point is None else mistakes_of(_check_point, composition, point)
        for line in lines:
            mistakes.add(line if line.startswith(f"{path}=") else f"space.{path} reaches {value!r}: {line}")


def _mistakes_between_ends(points: InitialPoints) -> Iterator[str]:
    """Yield the mistakes in a value between the ends of each real-valued range. A key of whole numbers accepts the ends
    16.0 and 128.0, and hardly any other value."""
    for path, distribution in points.space.distributions.items():
        context = points.space.context(path, points.lookup)
        if context is None or not isinstance(distribution, FloatDistribution):
            continue
        low, high, step = distribution.low, distribution.high, distribution.step
        value = low + (high - low) / math.pi if step is None else low + step
        if value >= high or (step is not None and value.is_integer()):
            continue
        point = {**context, path: value}
        if _allows(points, point):
            for line in mistakes_of(_check_point, points.composition, point):
                yield f"space.{path}: between low={low:g} and high={high:g}, {line}; use type: int, or another range"


def partly_invalid_ranges(points: InitialPoints) -> Iterator[str]:
    """Yield a note on each range of whole numbers some of whose values make no valid trial, such as batches that do not
    split over the workers. All values of a range are checked only if one of its first ones is invalid."""
    for path, distribution in points.space.distributions.items():
        context = points.space.context(path, points.lookup)
        if context is None or not isinstance(distribution, IntDistribution):
            continue
        values = range(distribution.low, distribution.high + 1, distribution.step)[:MAX_CHECKED]
        invalid: dict[int, str] = {}
        for index, value in enumerate(values):
            if index >= FIRST_CHECKED and not invalid:
                break
            point = {**context, path: value}
            lines = mistakes_of(_check_point, points.composition, point)
            if lines and _allows(points, point):
                invalid[value] = lines[0]
        if invalid:
            shown = ", ".join(map(str, [*invalid][:NAMED])) + (", ..." if len(invalid) > NAMED else "")
            first = next(iter(invalid.values()))
            yield (
                f"space.{path}: with the config's other values, trials with {shown} ({len(invalid)} of {len(values)} "
                f"values) would fail ({first}); leave them out with a step, choices or search.constraints"
            )


def _allows(points: InitialPoints, corner: Mapping[str, Any]) -> bool:
    """Whether the constraints allow a corner; true also if they cannot be computed."""
    try:
        return points.constraints.allows(corner)
    except ConfigError:
        return True


def _check_points(composition: Composition, points: InitialPoints, mistakes: _Mistakes) -> None:
    """Check that each of the user's points makes a valid trial, unless some of its values will be sampled."""
    if mistakes.lines:
        return
    for index, point in enumerate(composition.config.search.points):
        if points.is_complete(point):
            for line in mistakes_of(_check_point, composition, point):
                mistakes.add(f"search.points.{index}: {line}")


def _check_point(composition: Composition, point: Mapping[str, Any]) -> None:
    check_training(composition.trial(point))
