"""Trainings that only measure the joint throughput of several trials, in one or several worker groups with lanes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import ray

from sweeps.config.scaling import MOST_LANES
from sweeps.errors import SweepsError
from sweeps.folders.sweep_folder import MEASURED_FOLDER
from sweeps.runtime.driver_side import DriverSide
from sweeps.runtime.events import Ended, Log, Waiting
from sweeps.runtime.lane_number import MEASURED, SKIPPED, fastest
from sweeps.runtime.trainable import TrialContext
from sweeps.runtime.trial_assignment import Assignment
from sweeps_train.config import TrainingConfig

LOG_EVERY = 2
"""Steps between two logs, from whose times the speed of a training is computed."""
SKIPPED_LOGS, MEASURED_LOGS = SKIPPED // LOG_EVERY, MEASURED // LOG_EVERY
"""Number of logs of each training that are skipped first, and number of logs that are measured after that."""
NUMBERS_OF_LANES = [2**power for power in range(MOST_LANES.bit_length())]
STEPS = 1_000_000
"""Configured length of the trainings in steps; they are ended long before."""


class NotMeasured(SweepsError):
    """Raised when the trainings could not be measured."""


def joint_rate(logs: Sequence[Sequence[Log]]) -> float | None:
    """Compute the steps per second of all trainings together. Groups may begin at different times, so only the time in
    which all of them train counts.

    Returns:
        Steps per second; None if a training has too few logs.
    """
    if any(len(each) < SKIPPED_LOGS for each in logs):
        return None
    begin = max(each[SKIPPED_LOGS - 1].timestamp_ms for each in logs)
    joint = [[log for log in each if log.timestamp_ms >= begin] for each in logs]
    if any(len(each) <= MEASURED_LOGS for each in joint):
        return None
    ends = [(each[0], each[-1]) for each in joint]
    return sum(1000 * (last.step - first.step) / (last.timestamp_ms - first.timestamp_ms) for first, last in ends)


class MeasuredTrainings:
    """Concurrent trainings of the config's own values, whose speed is measured."""

    def __init__(
        self,
        context: TrialContext,
        broker: DriverSide,
        expect_progress: Callable[[float], None],
        show: Callable[[str], None],
    ) -> None:
        """
        Args:
            context: The sweep, with the workers to measure.
            broker: A broker that has no other trials and is not restarted.
            expect_progress: Called again and again with the seconds until the next call.
            show: Shows a line to the user.
        """
        self._config, self._broker, self._context = context.composition.config, broker, context
        self._expect_progress, self._show = expect_progress, show
        self._folder = Path(context.folder) / MEASURED_FOLDER
        self._attempts: dict[str, int] = {}
        """Attempt of each training, by its name."""

    def rates(self) -> dict[int, float]:
        """Measure with 1, 2, 4, ... lanes in each group as long as that gains, and at most as many trainings as the
        search has trials at a time.

        Returns:
            Steps per second of all trainings together, by the number of lanes.

        Raises:
            NotMeasured: The trainings fail even with one lane.
            RayError: The broker's process died before one lane was measured.
        """
        search, groups = self._config.search, self._context.fit.groups
        most = min(search.num_trials, search.max_concurrent or search.num_trials)
        rates: dict[int, float] = {}
        self._broker.set_groups(groups)
        try:
            for lanes in NUMBERS_OF_LANES:
                self._begin(min(lanes * groups, most))
                rates[lanes] = self._rate()
                if fastest(rates) < lanes or len(self._attempts) == most:
                    break
        except (NotMeasured, ray.exceptions.RayError):  # an error such as the broker's death
            if not rates:
                raise
        finally:
            self._broker.end_groups()
            shutil.rmtree(self._folder, ignore_errors=True)
        return rates

    def _begin(self, number: int) -> None:
        """Start trainings until there are ``number``, evenly in all groups."""
        context, trials = self._context, self._broker.of_trials
        fit = replace(context.fit, finds_lanes=False)
        spec = context.workers(self._config, fit, None, fit.excluded_nodes)
        # Ray Train's own files are in a folder of the name of a group's first trial.
        workers = f"{fit.groups}x{fit.num_workers}x{fit.per_worker.get('GPU', 0):g}"
        for index in range(len(self._attempts), number):
            name = f"measured-{workers}-{index}"
            self._attempts[name] = trials.begin(name, saves_when_asked=False, lost=None).attempt
            trials.assign_lane(self._assignment(name), spec)

    def _assignment(self, name: str) -> Assignment:
        config, folder = self._config, str(self._folder / name)
        training = config.training()
        assert isinstance(training, TrainingConfig)  # since no other one may share its workers
        train = replace(training.train, max_steps=STEPS, epochs=None, eval_every=STEPS, log_every=LOG_EVERY)
        return Assignment(
            trial=name,
            attempt=self._attempts[name],
            training=replace(training, train=train, checkpoint=replace(training.checkpoint, every=STEPS)),
            metrics=config.search.metrics,
            modes=config.search.modes,
            checkpoint_folder=folder,
            log_folder=folder,
            broker=self._broker.of_trials.workers,
            hang_timeout_s=config.scaling.hang_timeout_s,
            prepare_timeout_s=config.scaling.prepare_timeout_s,
            shared=self._context.shared,
        )

    def _rate(self) -> float:
        """Return the steps per second of all trainings together.

        Raises:
            NotMeasured: A training has ended, or the measurement takes too long.
        """
        logs: dict[str, list[Log]] = {name: [] for name in self._attempts}
        scaling = self._config.scaling
        deadline = time.monotonic() + scaling.prepare_timeout_s + scaling.hang_timeout_s
        while (rate := joint_rate([*logs.values()])) is None:
            self._expect_progress(scaling.hang_timeout_s)
            if (events := self._broker.drain(1.0)) is None or time.monotonic() > deadline:
                raise NotMeasured("the broker's process died" if events is None else "the trainings make no steps")
            for event in events:
                if isinstance(event, Log):
                    logs[event.trial].append(event)
                    if all(logs.values()):  # all trainings have started
                        deadline = time.monotonic() + scaling.hang_timeout_s
                elif isinstance(event, Waiting):
                    self._show(f"{event.trial} waits: others use the cluster's resources")
                elif isinstance(event, Ended):
                    raise NotMeasured(event.error or "a worker was lost")
        return rate
