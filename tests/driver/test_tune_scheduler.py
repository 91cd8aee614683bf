"""The adapter through which Tune asks a scheduler of the search."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher
from ray.tune.utils.object_cache import _ObjectCache

from sweeps.config.objectives import Objectives
from sweeps.constants import COMPLETED, ORIGIN, PARAMETERS, POOL, STEP, STOPPED, TRIAL
from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
from sweeps.driver.tune_scheduler import TuneScheduler
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.runtime.trainable import trial_resources
from sweeps.search.schedulers.pausing import PausingScheduler
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Choice, Exploit, Result, ScheduledTrial, Verdict


class Told(Searcher):
    """Notes what it is told."""

    def __init__(self, order: list[str]) -> None:
        super().__init__("loss", "min")
        self._order = order
        self.exploits: list[Exploit] = []

    def exploited(self, exploit: Exploit) -> None:
        self.exploits.append(exploit)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        return {TRIAL: "0000", PARAMETERS: {"lr": 1.0}}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._order.append("the study has the report")

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if result is not None and result.get(STOPPED):
            self._order.append("the study knows that a person has stopped it")


class Fixed(PausingScheduler):
    """Decides as it is told to, and notes when it is asked."""

    def __init__(self, order: list[str], decision: Verdict | Exploit) -> None:
        super().__init__(Objectives(("loss",), ("min",)))
        self._order, self._decision = order, decision

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict | Exploit:
        self._order.append("decided")
        return self._decision

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        self._order.append("completed")

    def leave(self, trial: ScheduledTrial, places: Places) -> None:
        self._order.append("left")

    def ready(self, paused: Sequence[ScheduledTrial], places: Places, *, complete: bool) -> Choice:
        return [*paused], []


class Controller:
    """Tune's controller, as far as schedulers call it."""

    def __init__(self, trial: Trial) -> None:
        self.live, self.stopped, self.paused = [trial], 0, 0
        self._actor_cache = _ObjectCache()

    def get_live_trials(self) -> list[Trial]:
        return self.live

    def stop_trial(self, trial: Trial) -> None:
        self.stopped += 1

    def pause_trial(self, trial: Trial, *, should_checkpoint: bool) -> None:
        assert not should_checkpoint
        self.paused += 1


class Scene:
    def __init__(self, decision: Verdict | Exploit = Verdict.CONTINUE, *, interrupted: bool = False) -> None:
        self.order: list[str] = []
        self.done: list[str] = []
        self.is_unwanted = False
        self.trial = Trial("trainable", stub=True)
        self.controller = Controller(self.trial)
        told = Told(self.order)
        self.exploits = told.exploits
        session: Any = SimpleNamespace(
            decisions=SimpleNamespace(done=self.done.append),
            state=SimpleNamespace(
                lock=threading.RLock(),
                is_unwanted=lambda trial: self.is_unwanted,
                shutdown=SimpleNamespace(interrupts_trials=lambda: interrupted),
            ),
        )
        self.limiter = PauseAwareLimiter(told, 2)
        self.trial.config = self.limiter.suggest(self.trial.trial_id)
        self.scheduler = TuneScheduler(Fixed(self.order, decision), self.limiter, session)
        self.scheduler.on_trial_add(self.controller, self.trial)

    def decide(self) -> Verdict | Exploit:
        """Decide on a report, as the driver does when it has recorded it."""
        return self.scheduler.decide("0000", {STEP: 10, "loss": 0.5})

    def returned(self) -> str:
        """Let the trial's actor return; this is the answer to Tune."""
        return self.scheduler.on_trial_result(self.controller, self.trial, {STEP: 10, "loss": 0.5})


@pytest.mark.parametrize(
    ("verdict", "expected", "paused"),
    [
        (Verdict.CONTINUE, TrialScheduler.CONTINUE, 0),
        (Verdict.PAUSE, TrialScheduler.NOOP, 1),  # without a checkpoint of Tune's own, which may have no common folder
        (Verdict.STOP, TrialScheduler.STOP, 0),
    ],
)
def test_a_report_is_in_the_study_before_it_is_decided_on(verdict: Verdict, expected: str, paused: int) -> None:
    scene = Scene(verdict)
    assert scene.decide() is verdict
    assert (scene.order, scene.done) == (["the study has the report", "decided"], [])
    assert scene.returned() is expected  # Tune compares by identity
    assert (len(scene.order), scene.done, scene.controller.paused) == (2, ["0000"], paused)


def test_a_trial_that_takes_over_a_state_is_paused_with_its_new_values_and_told_to_the_driver() -> None:
    exploit = Exploit("0000", Origin("0001", 20, 1), {"lr": 2.0})
    scene = Scene(exploit)
    assert scene.decide() is exploit
    assert (scene.controller.paused, scene.exploits) == (0, [exploit])
    assert scene.returned() is TrialScheduler.NOOP
    assert (scene.controller.paused, scene.exploits) == (1, [exploit])
    assert scene.trial.config[PARAMETERS] == {"lr": 2.0}
    assert scene.trial.config[ORIGIN] == exploit.origin


def test_a_trial_that_has_failed_for_good_is_not_decided_on_while_its_workers_still_report() -> None:
    scene = Scene(Verdict.STOP)
    scene.scheduler.on_trial_error(scene.controller, scene.trial)
    scene.limiter.on_trial_complete(scene.trial.trial_id, error=True)
    assert scene.decide() is Verdict.CONTINUE
    assert scene.order == ["left"]  # a decision about it cannot be recorded any more


def test_a_retried_trial_keeps_its_place_in_the_search() -> None:
    scene = Scene(Verdict.PAUSE)
    scene.decide()
    scene.trial.set_status(Trial.ERROR)  # type: ignore[no-untyped-call]
    scene.scheduler.on_trial_error(scene.controller, scene.trial)
    scene.trial.set_status(Trial.PENDING)  # type: ignore[no-untyped-call]
    scene.scheduler.on_trial_add(scene.controller, scene.trial)
    assert scene.order == ["the study has the report", "decided"]
    assert scene.returned() is TrialScheduler.NOOP  # the next attempt got the same answer
    assert scene.controller.paused == 1


def test_idle_workers_are_kept_in_every_pool_for_as_many_trials_as_it_has() -> None:
    scene = Scene()
    resources = trial_resources(["large", "small"])
    for number, pool in enumerate(("large", "small", "small"), start=1):
        trial = Trial("trainable", config={TRIAL: f"{number:04}", PARAMETERS: {}}, stub=True)
        trial.placement_group_factory = resources({POOL: pool})
        scene.scheduler.on_trial_add(scene.controller, trial)
    cache = scene.controller._actor_cache
    assert [cache.cache_object(resources({POOL: "large"}), each) for each in range(2)] == [True, False]
    assert [cache.cache_object(resources({POOL: "small"}), each) for each in range(3)] == [True, True, False]


def test_after_an_interruption_nothing_is_decided_and_paused_trials_stay_paused() -> None:
    scene = Scene(Verdict.STOP, interrupted=True)
    assert scene.decide() is Verdict.CONTINUE
    scene.trial.set_status(Trial.PAUSED)
    assert scene.scheduler.choose_trial_to_run(scene.controller) is None
    assert scene.controller.stopped == 1  # for Tune; the study has it as unfinished
    scene.scheduler.on_trial_remove(scene.controller, scene.trial)
    scene.scheduler.on_trial_complete(scene.controller, scene.trial, {STEP: 10})
    assert scene.order == ["the study has the report"]
    scene.scheduler.on_trial_complete(scene.controller, scene.trial, {STEP: 20, COMPLETED: True})
    assert scene.order[-1] == "completed"


def test_without_an_interruption_a_paused_trial_goes_on_once_tune_has_paused_it() -> None:
    scene = Scene(Verdict.PAUSE)
    scene.decide()
    assert scene.scheduler.choose_trial_to_run(scene.controller) is None
    scene.returned()
    scene.trial.set_status(Trial.PAUSED)
    assert scene.scheduler.choose_trial_to_run(scene.controller) is scene.trial


def test_a_paused_trial_goes_on_after_another_one_has_failed_for_good_before_its_decision_was_carried_out() -> None:
    scene = Scene(Verdict.PAUSE)
    paused = Trial("trainable", config={TRIAL: "0001", PARAMETERS: {"lr": 1.0}}, stub=True)
    scene.scheduler.on_trial_add(scene.controller, paused)
    paused.set_status(Trial.PAUSED)
    scene.controller.live.append(paused)
    scene.decide()
    assert scene.scheduler.choose_trial_to_run(scene.controller) is None
    scene.trial.set_status(Trial.ERROR)  # Tune keeps it among the live ones
    assert scene.scheduler.choose_trial_to_run(scene.controller) is paused


def test_a_paused_trial_that_a_person_stops_ends_without_workers() -> None:
    scene = Scene(Verdict.PAUSE)
    scene.decide()
    scene.returned()
    scene.trial.set_status(Trial.PAUSED)
    scene.is_unwanted = True
    assert scene.scheduler.choose_trial_to_run(scene.controller) is None
    assert scene.controller.stopped == 1
    assert scene.order[2:] == ["left", "the study knows that a person has stopped it"]
    assert scene.trial.last_result[STOPPED], "so that its record tells it as well"
