"""Drives a scheduler as Tune does, without Ray's processes: trials that report given curves, in a given order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler


class FakeTrial:
    """A trial as schedulers see it. Its curve is what it will report: pairs of progress and value."""

    def __init__(self, name: str, curve: Sequence[tuple[float, float]]):
        self.trial_id = name
        self.curve = list(curve)
        self.position = 0
        self.status = Trial.PENDING
        self.is_saving = False
        self.decisions: list[str] = []

    def __repr__(self) -> str:
        return self.trial_id

    def is_finished(self) -> bool:
        return self.status in (Trial.TERMINATED, Trial.ERROR)


class Controller:
    """As much of Tune's controller as our schedulers use."""

    def __init__(self, scheduler: TrialScheduler, resource: str, *, places: int, mode: str = "min"):
        self.scheduler, self.resource, self.size = scheduler, resource, places
        self.trials: list[FakeTrial] = []
        self.search_alg = self
        self.searcher = self
        self.paused: set[str] = set()
        self.held_back = self.dry = False
        self.order: list[str] = []
        scheduler.set_search_properties("loss", mode)

    # --- what schedulers ask ---

    @property
    def free(self) -> int:
        return self.size - sum(each.status in (Trial.RUNNING, Trial.PENDING) for each in self.trials)

    def is_finished(self) -> bool:
        return False

    def get_live_trials(self) -> list[FakeTrial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def get_trials(self) -> list[FakeTrial]:
        return self.trials

    def stop_trial(self, trial: FakeTrial) -> None:
        if trial.status == Trial.PAUSED:
            self.scheduler.on_trial_remove(self, trial)  # type: ignore[arg-type]
        else:
            self.scheduler.on_trial_complete(self, trial, self.result(trial, trial.position - 1))  # type: ignore[arg-type]
        trial.status = Trial.TERMINATED

    # --- what Tune does ---

    def result(self, trial: FakeTrial, index: int) -> dict[str, Any]:
        progress, value = trial.curve[index]
        return {self.resource: progress, "loss": value, "training_iteration": index + 1}

    def add(self, name: str, curve: Sequence[tuple[float, float]]) -> FakeTrial:
        trial = FakeTrial(name, curve)
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)  # type: ignore[arg-type]
        trial.status = Trial.RUNNING
        return trial

    def report(self, trial: FakeTrial) -> str:
        """The trial's next report; what became of it."""
        self.order.append(trial.trial_id)
        trial.position += 1
        result = self.result(trial, trial.position - 1)
        if trial.position == len(trial.curve):
            self.scheduler.on_trial_complete(self, trial, result)  # type: ignore[arg-type]
            trial.status = Trial.TERMINATED
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
        """All trials to their ends: new ones as places are free, reports in the order that ``choose`` makes."""
        waiting = list(curves.items())
        for _ in range(100_000):
            if self.free > 0 and not self.held_back:
                if waiting:
                    self.add(*waiting.pop(0))
                self.dry = not waiting and self.free > 0
            chosen = self.scheduler.choose_trial_to_run(self)  # type: ignore[arg-type]
            if chosen is not None:
                assert chosen.status == Trial.PAUSED
                chosen.status = Trial.RUNNING
            running = [trial for trial in self.trials if trial.status == Trial.RUNNING]
            if running:
                self.report(choose(running))
            elif not waiting and all(trial.is_finished() for trial in self.trials):
                return
        raise AssertionError("trials neither end nor go on")
