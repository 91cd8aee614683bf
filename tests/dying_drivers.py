"""Simulation of a search whose driver dies: of Tune and the workers what searcher and scheduler use, with a real study
and real checkpoint folders, which are all that outlives a driver."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
from optuna.storages import InMemoryStorage
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from sweeps.config.space import FloatDistribution
from sweeps.constants import COMPLETED, LINEAGE, NUMBER, ORIGIN, PARAMETERS, STEP, STOPPED, TRIAL
from sweeps.driver.sweep_searcher import SweepSearcher
from sweeps.runtime.checkpoint_layout import checkpoint_folder, pin
from sweeps.search.schedulers.decisions import DecisionLog, was_stopped
from sweeps.search.schedulers.pause_aware_limiter import PauseAwareLimiter
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.pbt import Exploit
from sweeps.space.distributions import Space
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

    def __init__(self, config: dict[str, Any], trials: Path, length: int, known: int):
        self._config, self._length = config, length
        origin = config.get(ORIGIN)
        self.num_exploits = origin.num_exploits if origin is not None else 0
        self._folder = checkpoint_folder(trials, config[TRIAL], self.num_exploits)
        found = sorted(self._folder.glob("step-*"))
        self.step = int(found[-1].name.removeprefix("step-")) if found else 0
        self._state = float((found[-1] / "state").read_text()) if found else 0.0
        self._metrics = (read_metrics(found[-1]) if found else None) or {}
        self.repeats = self.step > known and bool(self._metrics)

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
        chance = random.Random(f"{self._config[TRIAL]}/{self.num_exploits}/{self.step}")
        point = self._config[PARAMETERS]
        self._state += point["lr"] * (1 - point["decay"]) + chance.gauss(0, 0.2)
        self._metrics = {"loss": round(1 / (1 + abs(self._state)), 2)}  # so that ties occur
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metrics.json").write_text(json.dumps(self._metrics))
        (self.checkpoint / "state").write_text(repr(self._state))
        # As `seal` does, which would wait for the disk.
        metrics = (self.checkpoint / "metrics.json").read_bytes()
        (self.checkpoint / SEAL_FILE).write_bytes(with_checksum_of(b"{}", "metrics.json", metrics))


class SimulatedTrial(Trial):
    """Tune's trial, without an actor."""

    def __init__(self, trial_id: str, config: dict[str, Any]):
        super().__init__("trial", config=config, trial_id=trial_id, stub=True)
        self.worker: Worker | None = None
        self.known = 0
        """Last step that Tune has received in this session."""
        self.last: dict[str, Any] = {}

    def init_local_path(self) -> None:
        """Do nothing: the simulation needs no folder."""


class Driver:
    """One session of a search: the relevant part of Tune's controller, in the order of its steps."""

    def __init__(
        self,
        disk: Disk,
        build: Callable[[DecisionLog, Callable[[Exploit], None], Path], TrialScheduler],
        *,
        trials: int,
        length: int,
        places: int,
        num_trials: int | None = None,
    ):
        self.disk, self.length = disk, length
        self.interrupted = False
        self.exploits: list[Exploit] = []
        session: Any = SimpleNamespace(
            state=SimpleNamespace(
                shutdown=SimpleNamespace(interrupts_trials=lambda: self.interrupted, status=None),
                folder=disk.folder,
                pools=None,
            ),
            worker_events=SimpleNamespace(exploited=self.exploits.append),
        )
        chance = random.Random(0)
        points = [{"lr": 10 ** chance.uniform(-4, 0), "decay": chance.random()} for _ in range(trials)]
        self.searcher = SweepSearcher(
            session,
            SPACE,
            metric="loss",
            mode="min",
            sampler=optuna.samplers.RandomSampler(seed=0),
            storage=disk.storage,
            study_name="study",
            num_trials=num_trials or trials,
            points=points,
        )
        self.searcher.prune_unfinished(was_stopped)
        decisions = DecisionLog(
            self.searcher.study, on_report=self.searcher.on_trial_result, interrupted=lambda: self.interrupted
        )
        self.scheduler = build(decisions, self.searcher.exploited, disk.folder)
        self._pauses = isinstance(self.scheduler, PausingScheduler)
        self._places = PauseAwareLimiter(self.searcher, places, restart_together=self._pauses)
        self.scheduler.set_search_properties("loss", "min")
        self.search_alg = SimpleNamespace(searcher=self._places)
        self._actor_cache = SimpleNamespace(increase_max=lambda request, by: None)
        self._trials: list[SimulatedTrial] = []
        self._saving: set[str] = set()

    # --- what schedulers ask -------------------------------------------------------------------------------------

    def get_trials(self) -> list[SimulatedTrial]:
        return self._trials

    def get_live_trials(self) -> set[SimulatedTrial]:
        return {trial for trial in self._trials if not trial.is_finished()}  # in any order, as Tune's

    def _schedule_trial_save(self, trial: SimulatedTrial, result: dict[str, Any]) -> object:
        self._saving.add(trial.trial_id)
        saved = SimpleNamespace(metrics=result)
        return SimpleNamespace(resolve=lambda: saved)

    def pause_trial(self, trial: SimulatedTrial, should_checkpoint: bool = True) -> None:
        trial.status, trial.worker = Trial.PAUSED, None

    def stop_trial(self, trial: SimulatedTrial) -> None:
        if trial.status == Trial.PAUSED:
            self.scheduler.on_trial_remove(self, trial)  # type: ignore[arg-type]
            self.disk.point()
            self.searcher_ends(trial)
        else:
            self.scheduler.on_trial_complete(self, trial, trial.last)  # type: ignore[arg-type]
            self.disk.point()
            self.searcher_ends(trial, trial.last)
        trial.status, trial.worker = Trial.TERMINATED, None

    def searcher_ends(self, trial: SimulatedTrial, result: dict[str, Any] | None = None) -> None:
        self._places.on_trial_complete(trial.trial_id, result)

    # --- what Tune does ------------------------------------------------------------------------------------------

    def run(self, stop_after: int | None = None) -> None:
        """Run to the end of the search, or until it is interrupted.

        Args:
            stop_after: Events until then.
        """
        events = 0
        while True:
            self._settle()
            running = [trial for trial in self._trials if trial.status == Trial.RUNNING]
            if not running and not self.get_live_trials() and self.searcher.ended_because is not None:
                return
            if events == stop_after:
                self._interrupt(running)
                return
            if running:
                events += 1
                self._hear(_next(running))

    def _settle(self) -> None:
        """Start all trials that may start before any trial reports, which takes longer."""
        quiet = 0
        while quiet < 2:  # what the scheduler says counts for the suggestions of the next round
            quiet = 0 if any([self._take_suggestions(), self._resume()]) else quiet + 1

    def _resume(self) -> bool:
        trial: Any = self.scheduler.choose_trial_to_run(self)  # type: ignore[arg-type]
        if trial is None or trial.status != Trial.PAUSED:
            return False
        self._start(trial)
        return True

    def _take_suggestions(self) -> bool:
        before = len(self._trials)
        while isinstance(config := self._places.suggest(trial_id := Trial.generate_id()), dict):
            trial = SimulatedTrial(trial_id, config)
            self._trials.append(trial)
            self.scheduler.on_trial_add(self, trial)  # type: ignore[arg-type]
            if trial.status == Trial.PENDING:
                self._start(trial)
        return len(self._trials) > before

    def _start(self, trial: SimulatedTrial) -> None:
        trial.status = Trial.RUNNING
        trial.worker = Worker(trial.config, self.disk.folder, self.length, trial.known)

    def _hear(self, trial: SimulatedTrial) -> None:
        assert trial.worker is not None
        worker, result = trial.worker, trial.worker.report()
        if result["done"]:
            trial.last = result
            self.stop_trial(trial)
            return
        decision = self.scheduler.on_trial_result(self, trial, result)  # type: ignore[arg-type]
        if decision != TrialScheduler.STOP:
            self._places.searcher.on_trial_result(trial.trial_id, result)
        trial.last = result
        if trial.trial_id in self._saving:
            self._saving.remove(trial.trial_id)
            self.disk.point()
            pin(self.disk.folder, trial.config[TRIAL], worker.num_exploits, worker.step)
        if decision == TrialScheduler.STOP:
            self.stop_trial(trial)
        elif decision == TrialScheduler.PAUSE:
            trial.known = worker.step
            self.pause_trial(trial)
        elif decision == TrialScheduler.NOOP:
            trial.known = 0  # what was saved is of another trial

    def _interrupt(self, running: list[SimulatedTrial]) -> None:
        """Interrupt the search: Tune learns of some trials that they have stopped, and not of the others.

        A scheduler that pauses trials decides nothing on a report after the interruption.
        """
        self.interrupted = True
        for trial in [_next(running)] if running and self._pauses else []:
            assert trial.worker is not None
            if trial.worker.step + 1 < self.length:
                result = trial.worker.report()
                assert self.scheduler.on_trial_result(self, trial, result) == TrialScheduler.CONTINUE  # type: ignore[arg-type]
                trial.last = result
        for trial in running[::2]:
            ended = {STOPPED: True, COMPLETED: False, "done": True}
            trial.last = {"training_iteration": 0, **trial.last, **ended}
            self.stop_trial(trial)
            self._resume()


def _next(running: list[SimulatedTrial]) -> SimulatedTrial:
    """Trial that reports next: always the same for the same trials at the same steps; repeated reports come first."""
    for trial in running:
        if trial.worker is not None and trial.worker.repeats and trial.worker.step:
            return trial
    ordered = sorted(running, key=lambda trial: str(trial.config[TRIAL]))
    where = [
        (trial.config[TRIAL], trial.worker and (trial.worker.num_exploits, trial.worker.step)) for trial in ordered
    ]
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
