"""Simulation of Tune's controller without Ray's processes: trials report given curves in a given order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from sweeps.constants import TRIAL
from sweeps.search.schedulers.pause_aware_limiter import PauseAwareLimiter


class FakeTrial:
    """A trial as schedulers see it. Its curve holds its reports: pairs of resource and value."""

    def __init__(self, name: str, curve: Sequence[tuple[float, float]]):
        self.trial_id = name
        self.config: dict[str, Any] = {TRIAL: name}
        self.curve = list(curve)
        self.position = 0
        self.status = Trial.PENDING
        self.placement_group_factory = None
        self.decisions: list[str] = []

    def __repr__(self) -> str:
        return self.trial_id

    def set_status(self, status: str) -> None:
        self.status = status

    def is_finished(self) -> bool:
        return self.status in (Trial.TERMINATED, Trial.ERROR)


class Curves(Searcher):
    """Searcher that suggests one trial after another, by name."""

    def __init__(self, names: Sequence[str]):
        super().__init__(metric="loss", mode="min")
        self.names = list(names)
        self.ended: dict[str, dict[str, Any] | None] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return {"name": self.names.pop(0)} if self.names else None

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        assert trial_id not in self.ended
        self.ended[trial_id] = result


class Controller:
    """The part of Tune's controller that the schedulers use."""

    def __init__(self, scheduler: TrialScheduler, resource: str, *, places: int, mode: str = "min"):
        self.scheduler, self.resource = scheduler, resource
        self.trials: list[FakeTrial] = []
        self.curves = Curves([])
        self.places = PauseAwareLimiter(self.curves, places)
        self.search_alg = SimpleNamespace(searcher=self.places)
        self._actor_cache = SimpleNamespace(increase_max=lambda request, by: None)
        self.order: list[str] = []
        """Names of the trials in the order of their reports."""
        self.most_running = 0
        scheduler.set_search_properties("loss", mode)

    # --- what schedulers ask ---

    def get_live_trials(self) -> list[FakeTrial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def get_trials(self) -> list[FakeTrial]:
        return self.trials

    def stop_trial(self, trial: FakeTrial) -> None:
        if trial.status == Trial.PAUSED:
            self.scheduler.on_trial_remove(self, trial)  # type: ignore[arg-type]
            self.places.on_trial_complete(trial.trial_id)
        else:
            result = self.result(trial, trial.position - 1)
            self.scheduler.on_trial_complete(self, trial, result)  # type: ignore[arg-type]
            self.places.on_trial_complete(trial.trial_id, result)
        trial.status = Trial.TERMINATED

    # --- what Tune does ---

    def result(self, trial: FakeTrial, index: int) -> dict[str, Any]:
        progress, value = trial.curve[index]
        return {self.resource: progress, "loss": value, "training_iteration": index + 1}

    def add(self, name: str, curve: Sequence[tuple[float, float]]) -> FakeTrial:
        trial = FakeTrial(name, curve)
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)  # type: ignore[arg-type]
        if trial.status == Trial.PENDING:
            trial.status = Trial.RUNNING
        return trial

    def report(self, trial: FakeTrial) -> str:
        """Make the trial's next report. Returns the scheduler's decision, or DONE."""
        self.order.append(trial.trial_id)
        trial.position += 1
        result = self.result(trial, trial.position - 1)
        if trial.position == len(trial.curve):
            self.stop_trial(trial)
            return "DONE"
        decision = self.scheduler.on_trial_result(self, trial, result)  # type: ignore[arg-type]
        trial.decisions.append(decision)
        if decision == TrialScheduler.STOP:
            self.stop_trial(trial)
        elif decision == TrialScheduler.PAUSE:
            trial.status = Trial.PAUSED
        return decision

    def run(
        self, curves: dict[str, Sequence[tuple[float, float]]], choose: Callable[[list[FakeTrial]], FakeTrial]
    ) -> None:
        """Run all trials to their ends, in the steps of Tune's loop; ``choose`` selects the next trial to report."""
        self.curves.names = list(curves)
        while not self.curves.ended or self.get_live_trials() or self.curves.names:
            suggestion = self.places.suggest(self.curves.names[0] if self.curves.names else "none")
            if suggestion is not None:
                self.add(suggestion["name"], curves[suggestion["name"]])
            resumed = self.scheduler.choose_trial_to_run(self)  # type: ignore[arg-type]
            if resumed is not None:
                assert resumed.status == Trial.PAUSED
                resumed.status = Trial.RUNNING
            running = [trial for trial in self.trials if trial.status == Trial.RUNNING]
            self.most_running = max(self.most_running, len(running))
            if running:
                self.report(choose(running))
            assert len(self.order) < 100_000, "trials neither end nor go on"


def random_curves(count: int, length: int, seed: int, stride: float = 1.0) -> dict[str, list[tuple[float, float]]]:
    chance = random.Random(seed)
    return {
        f"{number:02}": [(stride * step, round(chance.random(), 3)) for step in range(1, length + 1)]
        for number in range(count)
    }
