"""Checks of ``search.stages``: what a stage requires of the search, the numbers of trials, and how searched values are
rescaled from one stage to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweeps.compose.dotted import MISSING, find, leaves
from sweeps.config.search import Search
from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.space.space import Space
from sweeps.texts.suggestions import did_you_mean

LEARNING_SAMPLERS = ("tpe", "gp", "cmaes", "bohb", "curves", "predicted")
"""Samplers that learn from the trials of earlier stages."""
Values = Mapping[str, Any]
"""A config as nested mappings."""


def stage_mistakes(search: Search) -> Iterator[str]:
    """Yield one line for each mistake in ``search.stages``, with key, value and fix."""
    if not search.stages:
        return
    key = f"search.stages: has {len(search.stages)} stage{'s'[: len(search.stages) != 1]}, and"
    if len(search.metrics) > 1:
        yield (
            f"{key} stages are compared by one objective, while the sweep has {' and '.join(search.metrics)}; remove "
            "them, or name one search.metric"
        )
    if search.copies_trials:
        yield (
            f"{key} trials of search.scheduler.kind={search.scheduler.kind} continue from each other's states, so "
            "their parameters alone do not lead to their values again; remove them, or use search/scheduler=asha"
        )
    following = [*((f"search.stages.{index}.num_trials", each.num_trials) for index, each in enumerate(search.stages))]
    following = [*following[1:], ("search.num_trials", search.num_trials)]
    for index, (stage, (next_key, next_trials)) in enumerate(zip(search.stages, following, strict=True)):
        if stage.keep is None:
            continue
        if stage.keep > stage.num_trials:
            yield (
                f"search.stages.{index}.keep={stage.keep}: is more than the stage's num_trials={stage.num_trials}; set "
                "at most that"
            )
        elif stage.keep > next_trials:
            yield (
                f"search.stages.{index}.keep={stage.keep}: is more than {next_key}={next_trials}, which trains them "
                "again; set at most that"
            )


def stage_notes(search: Search) -> Iterator[str]:
    """Yield notes for the dry run on stages that are valid but may be unintended."""
    if search.stages and search.sampler.kind not in LEARNING_SAMPLERS:
        yield (
            f"search.sampler.kind={search.sampler.kind} does not learn from search.stages; only their best points are "
            "trained again"
        )


def rescaling_mistakes(search: Search, space: Space, phases: list[Values]) -> Iterator[str]:
    """Yield one line for each mistake in ``rescale`` of a stage, with key, value and fix. The phases are the configs of
    each stage, and of the sweep itself."""
    for index, stage in enumerate(search.stages):
        before, after = phases[index], phases[index + 1]
        for path, rule in stage.rescale.items():
            key = f"search.stages.{index}.rescale.{path}"
            if path not in space:
                yield f"{key}={rule}: {path} is not searched{did_you_mean(path, space)}"
                continue
            distribution = space[path]
            if not isinstance(distribution, FloatDistribution | IntDistribution):
                yield f"{key}={rule}: {path} has choices; only a range of numbers can be rescaled: leave it out"
                continue
            mistakes = list(_size_mistakes(key, rule, space, before, after)) if isinstance(rule, dict) else []
            yield from mistakes or _too_far(key, rule, distribution, before, after)


def rescaling_factor(rule: float | Mapping[str, float], stage: Values, following: Values) -> float:
    """Return the factor of a searched value from a stage to the next, or to the sweep: the rule itself, or powers by
    the path of a size."""
    if isinstance(rule, float | int):
        return float(rule)
    factor = 1.0
    for size, power in rule.items():
        factor *= (find(following, size) / find(stage, size)) ** power
    return factor


def _size_mistakes(key: str, rule: Mapping[str, float], space: Space, before: Values, after: Values) -> Iterator[str]:
    for size, power in rule.items():
        what, values = f"{key}.{size}={power:g}:", (find(before, size), find(after, size))
        if size in space:
            yield f"{what} {size} is searched, and so has no single value in the stage; name one that the stage changes"
        elif values == (MISSING, MISSING):
            known = [path for each in (before, after) for path in leaves(each) if _is_size(find(each, path))]
            section = [path for path in known if path.partition(".")[0] == size.partition(".")[0]]
            yield f"{what} the config has no {size}{did_you_mean(size, section or known)}; or give a factor instead"
        elif not all(map(_is_size, values)):
            was, becomes = ("missing" if value is MISSING else value for value in values)
            yield (
                f"{what} {size} is {was} in the stage and {becomes} after it; name a key that is a positive number in "
                "both, or give a factor instead of the mapping"
            )
        elif values[0] == values[1]:
            yield (
                f"{what} {size} is {values[0]:g} in the stage and after it, which changes nothing; change it in the "
                "stage's overrides, or leave it out"
            )


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _too_far(
    key: str,
    rule: float | Mapping[str, float],
    distribution: FloatDistribution | IntDistribution,
    before: Values,
    after: Values,
) -> Iterator[str]:
    low, high, factor = distribution.low, distribution.high, rescaling_factor(rule, before, after)
    if low * factor > high or high * factor < low:
        least, most = sorted((low / high, high / low))  # neither is 0, since 0 stays in its range
        yield (
            f"{key}={rule}: multiplies by {factor:g}, which takes every value out of the range {low:g} to {high:g}; "
            f"give a rule with a factor between {least:g} and {most:g}"
        )
