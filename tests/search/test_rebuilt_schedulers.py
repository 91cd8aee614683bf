"""Schedulers that are rebuilt from the study after their driver died at any write: every decision is the one that an
uninterrupted search makes."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import optuna
import pytest
from dying_drivers import LOSS, SPACE, Disk, Driver, DriverDied, outcome
from optuna.trial import TrialState
from scheduling import CurveTrial

from sweeps.compat.optuna import copy_system_attributes
from sweeps.compat.ray_tune import explore_by_pb2
from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit
from sweeps.constants import COMPLETED, NUMBER
from sweeps.driver.pinned_states import PinnedStates
from sweeps.errors import ConfigError
from sweeps.plan.extend import extended
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.decisions import DecisionLog, decisions_if_longer, is_running
from sweeps.search.schedulers.freeze_thaw import FreezeThaw
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.mutation import Mutation
from sweeps.search.schedulers.pb2 import PopulationBasedBandits
from sweeps.search.schedulers.pbt import PopulationBasedTraining
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Scheduler, Verdict
from sweeps.search.study_rewriting import _in_space

TRIALS = 6


Build = Callable[[DecisionLog, PinnedStates], Scheduler]


def population(build: Callable[..., Scheduler], **more: Any) -> Build:
    mutation = Mutation(SPACE, [*SPACE], lambda path: None, lambda point: None, resample_probability=0.25, seed=0)
    named: dict[str, Any] = {"objectives": LOSS, "population": lambda: TRIALS, **more}
    return lambda decisions, states: build("steps", 1, 0.34, mutation, states=states, decisions=decisions, **named)


SCHEDULERS: dict[str, Build] = {
    "asha": lambda decisions, states: Asha("steps", 1, 2, 2, 0, LOSS, decisions),
    "hyperband": lambda decisions, states: Hyperband("steps", 1, 4, 2, LOSS, decisions),
    "freeze_thaw": lambda decisions, states: FreezeThaw("steps", 1, 6, 2, SPACE, LOSS, decisions),
    "pbt": population(PopulationBasedTraining),
    "pb2": population(PopulationBasedBandits, ranges=dict(SPACE.distributions), explore=explore_by_pb2),
}
LENGTH = {"asha": 6, "hyperband": 6, "freeze_thaw": 6, "pbt": 4, "pb2": 4}
QUICK = {"pb2": 61, "pbt": 11, "freeze_thaw": 17}
SLOW = {"pb2": 5}
"""Number of writes between two deaths. PB2 and freeze-thaw fit models, which takes time."""


def with_places(*slow: tuple[str, int]) -> pytest.MarkDecorator:
    """All schedulers with one place and with three; of these are slow tests."""
    cases = [(each, places) for each in SCHEDULERS for places in (1, 3)]
    marked = [pytest.param(*each, marks=[pytest.mark.slow] if each in slow else []) for each in cases]
    return pytest.mark.parametrize(("scheduler", "places"), marked)


PB2 = (("pb2", 1), ("pb2", 3))


def driver(disk: Disk, scheduler: str, places: int) -> Driver:
    return Driver(disk, SCHEDULERS[scheduler], trials=TRIALS, length=LENGTH[scheduler], places=places)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Disk]:
    """Files of an uninterrupted search, which is made once."""

    @functools.cache
    def searched(scheduler: str, places: int) -> Disk:
        disk = Disk(tmp_path_factory.mktemp(scheduler) / "undisturbed")
        driver(disk, scheduler, places).run()
        return disk

    return searched


def decides(scheduler: str, decisions: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether the scheduler has decided anything that it could forget."""
    match scheduler:
        case "pbt":
            return any(event["event"] == "compared" and event["trained"] != event["step"] for _, event in decisions)
        case "pb2":
            return any(event.get("choice") for _, event in decisions)
    return any(event.get("stops") for _, event in decisions)


@pytest.mark.parametrize(
    "stride", [pytest.param(QUICK, id="some"), pytest.param(SLOW, id="all", marks=pytest.mark.slow)]
)
@with_places(*PB2)
def test_a_scheduler_whose_driver_dies_at_any_point_decides_as_if_it_had_not(
    undisturbed: Callable[[str, int], Disk], scheduler: str, places: int, stride: dict[str, int], tmp_path: Path
) -> None:
    whole = undisturbed(scheduler, places)
    expected = outcome(whole)
    assert decides(scheduler, expected[0])
    between = stride.get(scheduler, 5 if stride is QUICK else 1)
    for point in range(1, whole.writes + 1, between):
        disk = Disk(tmp_path / str(point))
        disk.dies_at = point
        with pytest.raises(DriverDied):
            driver(disk, scheduler, places).run()
        driver(disk, scheduler, places).run()
        assert outcome(disk) == expected, f"it died before write {point}"


@with_places(("pb2", 3))
def test_a_scheduler_whose_driver_dies_again_and_again_decides_as_if_it_had_not(
    undisturbed: Callable[[str, int], Disk], scheduler: str, places: int, tmp_path: Path
) -> None:
    expected = outcome(undisturbed(scheduler, places))
    for every in (31,) if scheduler == "pb2" else (7, 12, 31):
        disk = Disk(tmp_path / str(every))
        for _ in itertools.count():
            disk.dies_at = disk.writes + every
            try:
                driver(disk, scheduler, places).run()
            except DriverDied:
                continue
            break
        assert outcome(disk) == expected, f"it died before every write number {every}"


class DiskOfOneStop(Disk):
    """A disk whose driver dies when it has recorded that a trial is to be stopped for a violated limit, if asked to."""

    def __init__(self, folder: Path, *, dies: bool) -> None:
        self._dies = dies
        super().__init__(folder)

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        counted = super()._counted(write)

        def watched(*arguments: Any, **named: Any) -> Any:
            written = counted(*arguments, **named)
            decision = arguments[-1] if arguments else None
            if self._dies and isinstance(decision, dict) and "above its limit" in str(decision) and decision["stops"]:
                self.dies_at, self._dies = self.writes + 1, False
            return written

        return watched


@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("kind", ["hyperband", "freeze_thaw"])
def test_no_trial_waits_for_one_whose_driver_died_before_it_was_stopped_for_a_violated_limit(
    kind: str, places: int, tmp_path: Path
) -> None:
    limited = Objectives(("loss",), ("min",), {"loss": Limit(max=0.97)})

    def build(decisions: DecisionLog, states: PinnedStates) -> Scheduler:
        if kind == "hyperband":
            return Hyperband("steps", 1, 4, 2, limited, decisions)
        return FreezeThaw("steps", 1, 6, 2, SPACE, limited, decisions)

    def driver_on(disk: Disk) -> Driver:
        return Driver(disk, build, trials=8, length=6, places=places)

    undisturbed = DiskOfOneStop(tmp_path / "undisturbed", dies=False)
    driver_on(undisturbed).run()
    disk = DiskOfOneStop(tmp_path / "died", dies=True)
    with pytest.raises(DriverDied):
        driver_on(disk).run()
    driver_on(disk).run()
    assert outcome(disk) == outcome(undisturbed)


@pytest.mark.parametrize("length", [(None, None), (3, 6)], ids=["learned", "given"])
def test_a_finished_trial_that_becomes_longer_waits_and_ends_like_any_other(
    length: tuple[float | None, float | None],
) -> None:
    study = optuna.create_study(directions=["minimize"])
    for number in range(2):
        study.ask().set_user_attr(NUMBER, number)
    losses = {"0000": 0.1, "0001": 0.9}
    trials = [CurveTrial(name, [(step, loss) for step in (1, 2, 3)]) for name, loss in losses.items()]
    scheduler, places = FreezeThaw("steps", 1, length[0], 2, SPACE, LOSS, DecisionLog(study)), Places(2)
    for trial in trials:
        scheduler.add(trial, places)
    for reached in (1, 2):
        for trial in trials:
            scheduler.report(trial, {"steps": reached, "loss": losses[trial.id]}, places)
    for trial in trials:
        scheduler.complete(trial, {"steps": 3, "loss": losses[trial.id], COMPLETED: True}, places)

    extended = optuna.create_study(directions=["minimize"])
    for trial in study.get_trials():
        attributes = decisions_if_longer(trial.user_attrs)
        extended.add_trial(optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs=attributes))
    scheduler = FreezeThaw("steps", 1, length[1], 2, SPACE, LOSS, DecisionLog(extended))
    for trial in trials:
        places.begin(trial.id)
        assert scheduler.add(trial, places)
        trial.status = "paused"
    assert not any(is_running(trial) for trial in extended.get_trials())
    turn = scheduler.next(trials, places, is_over=True)
    assert turn == (trials[0], [])
    trials[0].status = "running"
    assert scheduler.report(trials[0], {"steps": 4, "loss": 0.1}, places) == Verdict.CONTINUE
    scheduler.complete(trials[0], {"steps": 6, "loss": 0.1, COMPLETED: True}, places)
    places.end("0000")
    assert scheduler.next(trials[1:], places, is_over=True).stopped == [trials[1]]


def extended_to_longer_trials(disk: Disk, folder: Path) -> Disk:
    """A copy of a search's files whose finished trials become longer."""
    shutil.copytree(disk.folder, folder)
    copy, old = Disk(folder), optuna.load_study(study_name="study", storage=disk.storage)
    new = optuna.create_study(study_name="study", storage=copy.storage)
    for key, value in old.user_attrs.items():
        new.set_user_attr(key, value)
    copy_system_attributes(old, new)
    for trial in old.get_trials():
        new.add_trial(_in_space(trial, SPACE, SPACE, lambda path: None, reopen={TrialState.COMPLETE}))
    copy.writes = 0
    return copy


def test_finished_trials_of_a_search_with_longer_ones_wait_at_their_old_end_also_for_a_driver_that_dies(
    tmp_path: Path,
) -> None:
    def driver_on(disk: Disk, longest: int) -> Driver:
        def build(decisions: DecisionLog, states: PinnedStates) -> Scheduler:
            return FreezeThaw("steps", 1, longest, 2, SPACE, LOSS, decisions)

        return Driver(disk, build, trials=TRIALS, length=longest, places=2)

    before = Disk(tmp_path / "before")
    driver_on(before, 2).run()
    whole = extended_to_longer_trials(before, tmp_path / "whole")
    assert len(driver_on(whole, 8).search.unfinished) == TRIALS
    driver_on(whole, 8).run()
    expected = outcome(whole)
    ends = [(state, max(reported)) for _, _, state, _, reported, _ in expected[1]]
    assert ends.count((TrialState.COMPLETE, 8)) in (1, 2)
    assert ends.count((TrialState.PRUNED, 2)) > TRIALS / 2
    for point in range(1, whole.writes, 13):
        disk = extended_to_longer_trials(before, tmp_path / str(point))
        disk.dies_at = point
        with pytest.raises(DriverDied):
            driver_on(disk, 8).run()
        driver_on(disk, 8).run()
        assert outcome(disk) == expected, f"it died before write {point}"


@with_places(*PB2)
def test_a_search_that_is_interrupted_after_any_report_decides_as_if_it_had_not_been(
    undisturbed: Callable[[str, int], Disk], scheduler: str, places: int, tmp_path: Path
) -> None:
    expected = outcome(undisturbed(scheduler, places))
    for events in range(0, 40, QUICK.get(scheduler, 5)):
        disk = Disk(tmp_path / str(events))
        driver(disk, scheduler, places).run(stop_after=events)
        driver(disk, scheduler, places).run()
        assert outcome(disk) == expected, f"it was interrupted after {events} events"


@pytest.mark.parametrize("places", [1, 3])
def test_a_search_that_is_extended_decides_on_what_it_knows_of_the_trials_before(
    undisturbed: Callable[[str, int], Disk], places: int, tmp_path: Path
) -> None:
    """One trial at a time gives the decisions of a search that had all trials from the beginning."""
    disk = Disk(tmp_path / "extended")
    for trials in (2, 3, TRIALS):
        Driver(disk, SCHEDULERS["asha"], trials=TRIALS, length=LENGTH["asha"], places=places, num_trials=trials).run()
    decisions, trials_of_study = outcome(disk)
    if places == 1:
        assert [decisions, trials_of_study] == outcome(undisturbed("asha", 1))
    assert any(event["stops"] for name, event in decisions if name >= "0003")


@pytest.mark.parametrize("kind", ["hyperband", "freeze_thaw"])
def test_a_range_that_would_move_the_rungs_of_earlier_decisions_is_not_widened(kind: str) -> None:
    tokens = [f"search/scheduler={kind}", "space=none", "train.max_steps=interval(40, 80)"]
    before = compose_sweep("digits", tokens, ConfSearchPath())
    record = cast("Any", SimpleNamespace(sweep="mine", trials=[]))
    with pytest.raises(ConfigError, match=rf"space.train.max_steps.\w+=.*: the rungs of search.scheduler.kind={kind}"):
        extended(before, {"space.train.max_steps.high": 400}, record)
    assert extended(before, {"search.num_trials": 1000}, record).config.search.num_trials == 1000
