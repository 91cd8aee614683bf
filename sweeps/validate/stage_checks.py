"""Checks of ``search.stages``: requirements of a stage on the search, and the numbers of trials."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.config.search import Search

LEARNING_SAMPLERS = ("tpe", "gp", "cmaes", "bohb", "curves", "predicted")
"""Samplers that learn from the trials of earlier stages."""


def stage_mistakes(search: Search) -> Iterator[str]:
    """Yield one line for each mistake, with key, value and fix."""
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
    """Yield notes for the dry run on settings that are valid but may be unintended."""
    if search.stages and search.sampler.kind not in LEARNING_SAMPLERS:
        yield (
            f"search.sampler.kind={search.sampler.kind} does not learn from search.stages; only their best points are "
            "trained again"
        )
