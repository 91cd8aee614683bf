"""Simulation of a search whose driver dies, with a real study and real checkpoint folders: they outlive a driver."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import InMemoryStorage

from sweeps.config.objectives import Objectives
from sweeps.config.space import FloatDistribution
from sweeps.constants import COMPLETED, LINEAGE, NUMBER, STEP, STOPPED
from sweeps.driver.pinned_states import PinnedStates
from sweeps.runtime.checkpoint_layout import Origin, checkpoint_folder, is_pinned
from sweeps.search.schedulers.decisions import DecisionLog, was_stopped
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Exploit, Scheduler, Verdict
from sweeps.search.study_search import StudySearch, Suggested
from sweeps.search.trial_ids import trial_id
from sweeps.space.space import Space
from sweeps_train.checkpoints.checkpoint_metrics import read_metrics
from sweeps_train.checkpoints.integrity import SEAL_FILE, with_checksum_of

SPACE = Space(
    {
        "lr": FloatDistribution(type="float", low=1e-4, high=1.0, log=True),
        "decay": FloatDistribution(type="float", low=0.0, high=1.0),
    }
)
WRITES = (
    *("create_new_trial", "set_trial_param", "set_trial_state_values", "set_trial_intermediate_value"),
    *("set_trial_user_attr", "set_trial_system_attr", "set_study_user_attr", "set_study_system_attr"),
)


LOSS = Objectives(("loss",), ("min",))


class DriverDied(BaseException):
    """Death of the driver; not an ``Exception``, so that nothing catches it."""


class Disk:
    """Counts writes, and raises ``DriverDied`` before the write of a given number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writes = 0
        self.dies_at: int | None = None
        self.storage = InMemoryStorage()
        for name in WRITES:
            setattr(self.storage, name, self._counted(getattr(self.storage, name)))

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.point()
            return write(*arguments, **named)

        return counted

    def point(self) -> None:
        """Count a write that is about to happen."""
        self.writes += 1
        if self.writes == self.dies_at:
            self.dies_at = None
            raise DriverDied


class Worker:
    """Trains a trial from its newest checkpoint: each step changes a state and reports a loss. Like a real worker it
    repeats the report of the checkpoint that it starts from, unless that is another trial's."""

    def __init__(self, trial: SimulatedTrial, trials: Path, length: int):
        self._trial, self._point, self._length = trial.id, trial.parameters, length
        self.num_exploits = trial.num_exploits
        self._folder = checkpoint_folder(trials, trial.id, self.num_exploits)
        found = sorted(self._folder.glob("step-*"))
        self.step = int(found[-1].name.removeprefix("step-")) if found else 0
        self._state = float((found[-1] / "state").read_text()) if found else 0.0
        self._metrics = (read_metrics(found[-1]) if found else None) or {}
        self.repeats = self.step > trial.known and bool(self._metrics)

    @property
    def checkpoint(self) -> Path:
        return self._folder / f"step-{self.step:08d}"

    def report(self) -> dict[str, Any]:
        if not self.repeats:
            self._train()
        self.repeats = False
        done = self.step == self._length
        progress = {"steps": self.step, STEP: self.step, "training_iteration": self.step, LINEAGE: self.num_exploits}
        return {**self._metrics, **progress, COMPLETED: done, "done": done}

    def _train(self) -> None:
        self.step += 1
        chance = random.Random(f"{self._trial}/{self.num_exploits}/{self.step}")
        self._state += self._point["lr"] * (1 - self._point["decay"]) + chance.gauss(0, 0.2)
        self._metrics = {"loss": round(1 / (1 + abs(self._state)), 2)}  # so that ties occur
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metrics.json").write_text(json.dumps(self._metrics))
        (self.checkpoint / "state").write_text(repr(self._state))
        # As `seal` does, which would wait for the disk.
        metrics = (self.checkpoint / "metrics.json").read_bytes()
        (self.checkpoint / SEAL_FILE).write_bytes(with_checksum_of(b"{}", "metrics.json", metrics))


class SimulatedTrial:
    """A trial, without a process."""

    def __init__(self, suggested: Suggested):
        self.number, self.id, self.parameters = suggested.number, trial_id(suggested.number), suggested.point
        self.origin = suggested.origin
        self.status: Literal["waiting", "running", "paused", "ended"] = "waiting"
        self.worker: Worker | None = None
        self.known = 0
        """Last step that the driver has received in this session."""
        self.last: dict[str, Any] = {}

    @property
    def num_exploits(self) -> int:
        return 0 if self.origin is None else self.origin.num_exploits


class States(PinnedStates):
    """Pinned checkpoints whose pinning is counted as a write."""

    def __init__(self, disk: Disk):
        super().__init__(disk.folder, LOSS)
        self._disk = disk

    def keep(self, trial: str, num_exploits: int, step: int) -> bool:
        if not is_pinned(self._disk.folder, Origin(trial, step, num_exploits)):
            self._disk.point()
        return super().keep(trial, num_exploits, step)


class Driver:
    """One session of a search, in the order of Tune's steps."""

    def __init__(
        self,
        disk: Disk,
        build: Callable[[DecisionLog, PinnedStates], Scheduler],
        *,
        trials: int,
        length: int,
        places: int,
        num_trials: int | None = None,
    ):
        self.disk, self.length = disk, length
        chance = random.Random(0)
        points = [{"lr": 10 ** chance.uniform(-4, 0), "decay": chance.random()} for _ in range(trials)]
        self.search = StudySearch(
            SPACE,
            metric="loss",
            mode="min",
            sampler=optuna.samplers.RandomSampler(seed=0),
            storage=disk.storage,
            study_name="study",
            num_trials=num_trials or trials,
            points=points,
        )
        self.search.prune_unfinished(was_stopped)
        self.scheduler = build(DecisionLog(self.search.study), States(disk))
        self._pauses = isinstance(self.scheduler, PausingScheduler)
        self._places = Places(places)
        self._trials: dict[str, SimulatedTrial] = {}

    def _live(self) -> set[SimulatedTrial]:
        return {trial for trial in self._trials.values() if trial.status != "ended"}  # in any order, as Tune's

    def _running(self) -> list[SimulatedTrial]:
        return [trial for trial in self._trials.values() if trial.status == "running"]

    def _end(self, trial: SimulatedTrial) -> None:
        was_paused, trial.worker = trial.status == "paused", None
        if self._pauses and self.search.interrupted and not (trial.last.get(COMPLETED) and not was_paused):
            pass  # it stays as it is
        elif was_paused:
            self.scheduler.leave(trial, self._places)
        else:
            self.scheduler.complete(trial, trial.last, self._places)
        self.disk.point()
        self._places.end(trial.id)
        self.search.end(trial.number, None if was_paused else trial.last)
        trial.status = "ended"

    def run(self, stop_after: int | None = None) -> None:
        """Run to the end of the search, or until it is interrupted after so many events."""
        events = 0
        while True:
            self._settle()
            running = self._running()
            if not running and not self._live() and self.search.ended_because is not None:
                return
            if events == stop_after:
                self._interrupt(running)
                return
            assert running, "no trial goes on, and the search has not ended"
            events += 1
            self._hear(_next(running))

    def _settle(self) -> None:
        """Start all trials that may start before any trial reports, which takes longer."""
        quiet = 0
        while quiet < 2:  # what the scheduler says counts for the suggestions of the next round
            quiet = 0 if any([self._take_suggestions(), self._resume()]) else quiet + 1

    def _resume(self) -> bool:
        if not isinstance(self.scheduler, PausingScheduler):
            return False
        if self.search.interrupted:
            for trial in [each for each in self._live() if each.status == "paused"]:
                self._end(trial)
            return False
        is_over = self.search.ended_because is not None
        turn = self.scheduler.next([*self._live()], self._places, is_over=is_over)
        for stopped in turn.stopped:
            self._end(self._trials[stopped.id])
        if turn.resumed is None:
            return False
        self._start(self._trials[turn.resumed.id])
        return True

    def _take_suggestions(self) -> bool:
        before = len(self._trials)
        while (self._pauses and self.search.unfinished) or self._places.may_begin():
            suggested = self.search.next_trial()
            self._places.is_empty = suggested is None
            if suggested is None:
                break
            trial = SimulatedTrial(suggested)
            self._trials[trial.id] = trial
            self._places.begin(trial.id)
            if self.scheduler.add(trial, self._places):
                trial.status = "paused"
            else:
                self._start(trial)
        return len(self._trials) > before

    def _start(self, trial: SimulatedTrial) -> None:
        trial.status = "running"
        trial.worker = Worker(trial, self.disk.folder, self.length)

    def _hear(self, trial: SimulatedTrial) -> None:
        assert trial.worker is not None
        worker, result = trial.worker, trial.worker.report()
        trial.last = result
        if result["done"]:
            self._end(trial)
            return
        self.search.report(trial.number, result)
        decided = self.scheduler.report(trial, result, self._places)
        if isinstance(decided, Exploit):
            trial.status, trial.worker, trial.known = "paused", None, 0  # what was saved is of another trial
            trial.parameters, trial.origin = dict(decided.parameters), decided.origin
            self.search.exploited(decided)
        if decided is Verdict.STOP:
            self._end(trial)
        elif decided is Verdict.PAUSE:
            trial.status, trial.worker, trial.known = "paused", None, worker.step

    def _interrupt(self, running: list[SimulatedTrial]) -> None:
        """Interrupt the search: Tune learns of some trials that they have stopped, and not of the others.

        A scheduler that pauses trials decides nothing on a report after the interruption.
        """
        self.search.interrupted = True
        for trial in [_next(running)] if running and self._pauses else []:
            assert trial.worker is not None
            if trial.worker.step + 1 < self.length:
                trial.last = trial.worker.report()
                self.search.report(trial.number, trial.last)
        for trial in running[::2]:
            ended = {STOPPED: True, COMPLETED: False, "done": True}
            trial.last = {"training_iteration": 0, **trial.last, **ended}
            self._end(trial)
            self._resume()


def _next(running: list[SimulatedTrial]) -> SimulatedTrial:
    """Trial that reports next: always the same for the same trials at the same steps; repeated reports come first."""
    for trial in running:
        if trial.worker is not None and trial.worker.repeats and trial.worker.step:
            return trial
    ordered = sorted(running, key=lambda trial: trial.id)
    where = [(trial.id, trial.worker and (trial.worker.num_exploits, trial.worker.step)) for trial in ordered]
    return random.Random(str(where)).choice(ordered)


def outcome(disk: Disk) -> list[Any]:
    """Outcome of a search: every decision in order, and the state of every trial in the study."""
    study = optuna.load_study(study_name="study", storage=disk.storage)
    decisions = [(name, {**event, "order": 0}) for name, event in DecisionLog(study).events]
    return [decisions, list(_trials(study))]


def _trials(study: optuna.Study) -> Iterator[Any]:
    for trial in study.get_trials():
        own = {name: value for name, value in trial.user_attrs.items() if not name.startswith("sweeps:decision")}
        for value in own.values():
            if isinstance(value, dict):
                value.pop("decision", None)
        yield trial.number, trial.user_attrs.get(NUMBER), trial.state, trial.params, trial.intermediate_values, own
