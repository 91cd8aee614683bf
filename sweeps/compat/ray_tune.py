"""Private names of Ray Tune."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import ray.tune.tune
from ray.air.execution import PlacementGroupResourceManager
from ray.air.execution._internal import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution import tune_controller
from ray.tune.execution.tune_controller import TuneController

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from ray.tune.experiment import Trial


def objective_of(part: Any) -> tuple[Any, Any]:
    """Return the metric and mode of a scheduler or searcher; lists for a searcher with several objectives, None for
    what is not set. A scheduler given by name, such as ``asha``, has neither."""
    return getattr(part, "metric", None), getattr(part, "mode", None) or getattr(part, "_mode", None)


@contextlib.contextmanager
def adapted_tune(
    *,
    ends_within_s: float,
    max_deaths: Callable[[Trial], int],
    before_step: Callable[[], None],
    releases: Callable[[], bool],
) -> Iterator[None]:
    """Adapt the searches that Tune begins inside the block.

    Args:
        ends_within_s: Seconds in which actors exit on their own after the search. By itself, Tune kills the last ones
            after 10 s, and with them their workers, which may write files as they end.
        max_deaths: Returns how often a trial may be restarted whose actor died before the trial began, or was killed
            because memory ran out.
        before_step: Called before each step of Tune's loop; may wait for an interruption if Ray is gone, for whose
            answer the step would wait a minute, and then end this process.
        releases: Returns whether to remove placement groups that are not used any more; also called when the
            controller is deleted after the block.
    """
    own = {
        # Tune's handlers of signals would end its loop as if the search had finished; ours stop the trials.
        (ray.tune.tune, "_setup_signal_catching"): threading.Event,
        (ray.tune.tune, "TuneController"): _controller(ends_within_s, max_deaths, before_step),
        (tune_controller, "RayActorManager"): _ActorManager,
        (tune_controller, "PlacementGroupResourceManager"): _placement_groups(releases),
    }
    before = {place: getattr(*place) for place in own}
    try:
        for place, adapted in own.items():
            setattr(*place, adapted)
        yield
    finally:
        for place, original in before.items():
            setattr(*place, original)


def _controller(
    ends_within_s: float, max_deaths: Callable[[Trial], int], before_step: Callable[[], None]
) -> type[TuneController]:
    class Controller(TuneController):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._actor_force_cleanup_timeout = math.ceil(ends_within_s)
            # Else Tune's loop would stand until the actor has ended.
            self._actor_cleanup_timeout = max(self._actor_cleanup_timeout, self._actor_force_cleanup_timeout)
            self._last_failure: tuple[str, int] | None = None
            """A trial and the id of its exception in this step; Tune pickles the controller, which may fail for others'
            exceptions."""

        def step(self) -> None:
            before_step()
            self._last_failure = None
            super().step()  # type: ignore[no-untyped-call]

        def _mark_trial_to_checkpoint(self, trial: Any) -> None:
            """Do nothing: after the search Tune would write 20 KB about each trial that nobody reads."""

        def _trial_task_failure(self, trial: Any, exception: Exception) -> None:
            # Ray tells of an actor's death twice if it has a task: for the actor, where the trial had not begun in it,
            # and for the task.
            if self._last_failure == (trial.trial_id, id(exception)):
                return
            self._last_failure = trial.trial_id, id(exception)
            if trial in self._resetting_trials:  # its actor has died before the next attempt began
                self._resetting_trials.discard(trial)
                if trial in self._staged_trials:
                    self._unstage_trial_with_resources(trial)
            super()._trial_task_failure(trial, exception)

        def _process_trial_failure(self, trial: Any, exception: Any) -> None:
            trial.max_failures = max_deaths(trial)
            # Until its first report, Tune asks the trial's actor for its last result, and that actor may be dead.
            trial._default_result_or_future = None
            if trial.status == trial.PENDING:  # its actor has died before it began: else Tune would not retry it
                self._set_trial_status(trial, trial.RUNNING)
            super()._process_trial_failure(trial, exception)

    return Controller


class _ActorManager(RayActorManager):
    def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
        super()._actor_start_failed(tracked_actor, _as_death(exception))

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        super()._actor_task_failed(tracked_actor_task, _as_death(exception))


def _as_death(exception: Exception) -> Exception:
    """Return an error of an actor that Ray killed for lack of memory as one of a dead actor, without Ray's advice:
    otherwise Tune would end the sweep."""
    if isinstance(exception, OutOfMemoryError):
        return RayActorError(error_msg=str(exception).partition("\n")[0])
    return exception


def _placement_groups(releases: Callable[[], bool]) -> type[PlacementGroupResourceManager]:
    class PlacementGroups(PlacementGroupResourceManager):
        def free_resources(self, acquired_resource: Any) -> None:
            if releases():
                super().free_resources(acquired_resource)

        def clear(self) -> None:  # also called when it is deleted
            if releases():
                super().clear()  # type: ignore[no-untyped-call]

    return PlacementGroups


def keep_idle_actor(controller: Any, trial: Trial) -> None:
    """Make Tune keep one more idle actor for trials with the resources of ``trial``."""
    controller._actor_cache.increase_max(trial.placement_group_factory)


def explore_by_pb2(
    observed: pd.DataFrame,
    bounds: Mapping[str, tuple[float, float]],
    chosen: np.ndarray[Any, Any] | None,
    donor: str,
    trial: str,
    values: Mapping[str, float],
) -> tuple[dict[str, float], pd.DataFrame]:
    """Propose new values for a trial by PB2's Gaussian process.

    Args:
        observed: Columns ``Trial``, ``Time``, one for each value, ``Reward``.
        bounds: Both ends of each value's range.
        chosen: Values that were chosen since the last observation, one row each.
        donor: Trial whose state is copied.
        trial: Trial that continues with the new values.
        values: The donor's values.

    Returns:
        The new values (the donor's, if the model has not seen it make progress), and ``observed`` with a row for the
        trial's start from them.
    """
    from ray.tune.schedulers.pb2 import _explore

    explore: Any = _explore  # Ray's annotations are wrong
    new, after = explore(observed, bounds, chosen, donor, trial, dict(values))
    return new, after
