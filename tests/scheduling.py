"""A search without workers: trials report given curves in a given order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from sweeps.config.objectives import Objectives
from sweeps.constants import STEP
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Exploit, Scheduler, Verdict

LOSS = Objectives(("loss",), ("min",))


class CurveTrial:
    """A trial as schedulers see it. Its curve holds its reports: pairs of resource and value."""

    def __init__(self, name: str, curve: Sequence[tuple[float, float]]):
        self.id, self.curve = name, list(curve)
        self.parameters: dict[str, Any] = {}
        self.position = self.num_exploits = 0
        self.status: Literal["running", "paused", "ended"] = "running"

    def __repr__(self) -> str:
        return self.id


class Controller:
    """Runs trials as a scheduler decides."""

    def __init__(self, scheduler: Scheduler, resource: str, *, places: int):
        self.scheduler, self.resource = scheduler, resource
        self.trials: list[CurveTrial] = []
        self.places = Places(places)
        self.to_begin: list[str] = []
        """Names of the trials that have not begun."""
        self.order: list[str] = []
        """Names of the trials in the order of their reports."""
        self.most_running = 0

    def add(self, name: str, curve: Sequence[tuple[float, float]]) -> CurveTrial:
        trial = CurveTrial(name, curve)
        self.trials.append(trial)
        self.places.begin(name)
        if self.scheduler.add(trial, self.places):
            trial.status = "paused"
        return trial

    def report(self, trial: CurveTrial) -> str:
        """Make the trial's next report. Returns the scheduler's verdict, or DONE."""
        self.order.append(trial.id)
        progress, value = trial.curve[trial.position]
        trial.position += 1
        result = {self.resource: progress, "loss": value, "training_iteration": trial.position}
        is_done = trial.position == len(trial.curve)
        result[STEP] = trial.position
        verdict = Verdict.STOP if is_done else self.scheduler.report(trial, result, self.places)
        if isinstance(verdict, Exploit):
            trial.num_exploits, trial.position = verdict.origin.num_exploits, verdict.origin.step
            verdict = Verdict.PAUSE
        if verdict is Verdict.STOP:
            self.scheduler.complete(trial, result, self.places)
            self._end(trial)
        elif verdict is Verdict.PAUSE:
            trial.status = "paused"
        return "DONE" if is_done else str(verdict)

    def resume(self) -> CurveTrial | None:
        """Let the next paused trial go on, if there is one, and end those that do not."""
        if not isinstance(self.scheduler, PausingScheduler):
            return None
        live = [trial for trial in self.trials if trial.status != "ended"]
        turn = self.scheduler.next(live, self.places, is_over=False)
        for stopped in cast("Sequence[CurveTrial]", turn.stopped):
            assert stopped.status == "paused"
            self.scheduler.leave(stopped, self.places)
            self._end(stopped)
        resumed = cast("CurveTrial | None", turn.resumed)
        if resumed is not None:
            assert resumed.status == "paused"
            resumed.status = "running"
        return resumed

    def fail(self, trial: CurveTrial) -> None:
        self.scheduler.leave(trial, self.places)
        self._end(trial)

    def _end(self, trial: CurveTrial) -> None:
        assert trial.status != "ended"
        self.places.end(trial.id)
        trial.status = "ended"

    def run(
        self, curves: dict[str, Sequence[tuple[float, float]]], choose: Callable[[list[CurveTrial]], CurveTrial]
    ) -> None:
        """Run all trials to their ends; ``choose`` selects the next trial to report."""
        self.to_begin = list(curves)
        while self.to_begin or any(trial.status != "ended" for trial in self.trials):
            if self.places.may_begin():
                self.places.is_empty = not self.to_begin
                if self.to_begin:
                    name = self.to_begin.pop(0)
                    self.add(name, curves[name])
            self.resume()
            running = [trial for trial in self.trials if trial.status == "running"]
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
