"""Private names of Ray Tune."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from ray.tune.experiment import Trial


def keep_idle_actors(controller: Any, trial: Trial, count: int) -> None:
    """Let Tune keep more idle actors for trials with the resources of ``trial``.

    Args:
        controller: Tune's controller.
        trial: One of the trials.
        count: Number of actors to keep, besides those that Tune keeps by itself.
    """
    controller._actor_cache.increase_max(trial.placement_group_factory, count)


def request_checkpoint(controller: Any, trial: Trial, result: Mapping[str, Any]) -> Any | None:
    """Ask a running trial for a checkpoint, without waiting for it.

    Returns:
        What ``checkpoint_metrics`` waits for, or None if the trial is already ending.
    """
    return controller._schedule_trial_save(trial, result=result)


def checkpoint_metrics(requested: Any) -> Mapping[str, Any] | None:
    """Wait for a requested checkpoint.

    Returns:
        The trial's last result at that checkpoint, or None if the trial saved nothing.
    """
    saved = requested.resolve()
    metrics: Mapping[str, Any] | None = None if saved is None else saved.metrics
    return metrics


def forget_checkpoint(trial: Trial) -> None:
    """Make Tune start a trial without the checkpoint that it knows of the trial."""
    checkpoints: Any = trial.run_metadata.checkpoint_manager
    checkpoints._latest_checkpoint_result = None


def explore_by_pb2(
    observed: pd.DataFrame,
    bounds: Mapping[str, tuple[float, float]],
    chosen: np.ndarray[Any, Any] | None,
    donor: str,
    trial: str,
    values: Mapping[str, float],
) -> tuple[dict[str, float], pd.DataFrame]:
    """New values of a trial, by PB2's Gaussian process.

    Args:
        observed: Columns ``Trial``, ``Time``, one for each value, ``Reward``.
        bounds: Both ends of each value's range.
        chosen: Values that were chosen since the last observation, one row each.
        donor: Trial whose state is copied.
        trial: Trial that goes on with the new values.
        values: The donor's values.

    Returns:
        The new values (the donor's, if the model has not seen it make progress), and ``observed`` with a row for the
        trial's start from them.
    """
    from ray.tune.schedulers.pb2 import _explore

    explore: Any = _explore  # Ray's annotations are wrong
    new, after = explore(observed, bounds, chosen, donor, trial, dict(values))
    return new, after
