"""Resolution of ``auto``, for the scheduler and for the sharing of workers, where the config alone decides it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sweeps.compose import Composition
from sweeps.config import SweepConfig
from sweeps.config.schedulers import AutomaticScheduler, FreezeThawScheduler
from sweeps.errors import ConfigError
from sweeps.search.schedulers.trial_length import LENGTH_PATHS, longest_trial
from sweeps.space.space import Space
from sweeps.texts.wording import amount
from sweeps.validate.config_checks import lookup_in
from sweeps.validate.scaling_checks import differences, why_alone
from sweeps_train.config import CommandTask

DECIDING_PATHS = LENGTH_PATHS | {"checkpoint", "checkpoint.every"}
"""Searched paths that decide whether a trial can be paused."""


def with_chosen_scheduler(composition: Composition) -> tuple[Composition, str | None]:
    """Replace the scheduler ``auto`` by ``freeze_thaw`` without pauses if the config shows that no trial can be, or
    would be, paused. Return the sweep, and the reason if its scheduler was replaced; otherwise the first trials
    decide."""
    automatic = composition.config.search.scheduler
    if not isinstance(automatic, AutomaticScheduler):
        return composition, None
    reason = None
    with contextlib.suppress(ConfigError):  # the check of the space reports it
        reason = _why_not_paused(composition, automatic)
    if reason is None:
        return composition, None
    settings = {name: value for name, value in vars(automatic).items() if name != "kind"}
    return composition.with_scheduler(FreezeThawScheduler(kind="freeze_thaw", pauses=False, **settings)), reason


def _why_not_paused(composition: Composition, automatic: AutomaticScheduler) -> str | None:
    space, lookup = Space(composition.config.space), lookup_in(composition)
    length = longest_trial(composition, space, automatic.resource, lookup)
    if length is not None and automatic.grace <= length < automatic.grace * automatic.eta:
        return f"with {amount(length, automatic.resource)} a trial reaches too few rungs to pause at"
    return next(filter(None, map(_why_trial_is_not_paused, _configs(composition, space))), None)


def _configs(composition: Composition, space: Space) -> Iterator[SweepConfig]:
    """Yield the sweep's config, and configs of trials that may differ from it in whether they can be paused."""
    yield composition.config
    points = [dict(variant) for variant in composition.variants if variant]
    points += [point for path, _, point in space.corners(lookup_in(composition)) if path in DECIDING_PATHS]
    for point in points:
        with contextlib.suppress(ConfigError):
            yield composition.trial(point)


def _why_trial_is_not_paused(config: SweepConfig) -> str | None:
    if isinstance(config.task, CommandTask) and config.task.checkpoints is None:
        return "the program saves no checkpoints (task.checkpoints)"
    if config.scaling.pools:
        return "a paused trial would continue in any of scaling.pools"
    if config.loop is not None and not config.checkpoint.includes_evaluations(config.loop.eval_every):
        return f"with checkpoint.every={config.checkpoint.every} some evaluations have no checkpoint"
    return None


def with_lanes(composition: Composition) -> tuple[Composition, str | None]:
    """Replace ``scaling.trials_per_group=auto`` by 1 if trials cannot share their workers. Return the sweep, and the
    reason if the number was replaced; otherwise the first trials decide."""
    if composition.config.scaling.trials_per_group != "auto":
        return composition, None
    reason = why_not_shared(composition)
    if reason is None:
        return composition, None
    alone = {"scaling.trials_per_group": 1, "scaling.measure_workers": False}
    measures = ", and no workers are measured" if composition.config.scaling.measure_workers else ""
    return composition.changed(alone), f"scaling.trials_per_group=auto is 1{measures}: {reason}"


def why_not_shared(composition: Composition) -> str | None:
    """Return the reason, in the config or among the searched values, why the trials of a sweep cannot share their
    workers; None if they can."""
    reason = why_alone(composition.config)
    if reason is None:
        with contextlib.suppress(ConfigError):  # the check of the space reports it
            space = Space(composition.config.space)
            reason = next(differences(composition, space, lookup_in(composition)), None)
    return reason
