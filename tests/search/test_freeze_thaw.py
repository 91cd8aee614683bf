"""The freeze-thaw scheduler: which trials go on, where early values tell the end and where they do not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from scheduling import LOSS, CurveTrial

from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit, Stop
from sweeps.config.space import CategoricalDistribution, FloatDistribution
from sweeps.constants import COMPLETED, DECISION_PREFIX, NUMBER, TIME_OF_REPORT
from sweeps.search import CurveSampler
from sweeps.search.schedulers.decisions import STOPS, DecisionLog, is_running
from sweeps.search.schedulers.freeze_thaw import START_COST, FreezeThaw
from sweeps.search.schedulers.places import Places
from sweeps.search.study_search import StudySearch
from sweeps.search.unit_cube import UnitCube
from sweeps.simulate.recorded_table import Report
from sweeps.simulate.simulation import Outcome, Simulation
from sweeps.space.space import Point, Space

SPACE = Space({"end": FloatDistribution(type="float", low=0, high=1)})
RUNGS = (1, 3, 9, 27)


@dataclass
class Curves:
    """Losses of which a share is the value at the end, and the rest is chance. The end is the point's value, or chance
    as well, so that no other trial tells anything of it."""

    told: float
    is_of_point: bool = True

    def curve(self, point: Point) -> list[Report]:
        draws = random.Random(str(point["end"]))
        chance, other = draws.random(), draws.random()
        end = point["end"] if self.is_of_point else other
        reports = []
        for step in RUNGS:
            early = (1 - self.told) * (step < RUNGS[-1])
            reports.append(Report(step, float(step), {"loss": 1 + (1 - early) * end + early * chance}))
        return reports


@dataclass
class Search:
    outcome: Outcome
    simulation: Simulation

    def share_that_went_on(self) -> float:
        """Share of the later half of the trials that went on from the first rung."""
        later = self.simulation.trials[len(self.simulation.trials) // 2 :]
        return float(np.mean([trial.position > 1 for trial in later]))

    def finished(self) -> list[int]:
        """Numbers of the trials that trained to their end."""
        return [trial.number for trial in self.simulation.trials if trial.position == len(RUNGS)]


def searched(
    source: Any,
    num_trials: int = 60,
    workers: int = 3,
    limit_s: float | None = None,
    seed: int = 0,
    *,
    sampler: optuna.samplers.BaseSampler | None = None,
    space: Space = SPACE,
    resource: str = "steps",
    longest: float | None = 27,
    objectives: Objectives = LOSS,
    pauses: bool = True,
) -> Search:
    sampler = sampler or optuna.samplers.RandomSampler(seed=seed)
    metrics, modes = objectives.metrics, objectives.modes
    searcher = StudySearch(space, metric=metrics, mode=modes, sampler=sampler, num_trials=num_trials)
    decisions = DecisionLog(searcher.study)
    named: dict[str, Any] = {"pauses": pauses}
    if limit_s is not None:
        named["remaining_s"] = lambda: limit_s - simulation.usage.wall_s
    scheduler = FreezeThaw(resource, 1, longest, 3, space, objectives, decisions, **named)
    stop = Stop(wall_hours=limit_s and limit_s * (1 + 1e-9) / 3600)  # a report at its end counts
    simulation = Simulation(searcher, scheduler, source, workers, stop)
    return Search(simulation.run(), simulation)


@dataclass
class Broken:
    """Losses that tell the end early; the last report of good trainings has no value, or breaks a limit."""

    last: dict[str, float]

    def curve(self, point: Point) -> list[Report]:
        reports = [Report(step, float(step), {"loss": point["end"] + 1 / step, "gb": 1.0}) for step in RUNGS]
        if point["end"] < 0.3:
            reports[-1] = Report(RUNGS[-1], float(RUNGS[-1]), {**reports[-1].metrics, **self.last})
        return reports


@pytest.mark.parametrize("last", [{"loss": float("nan")}, {"gb": 9.0}])
def test_a_trial_whose_last_report_is_bad_does_not_look_like_a_good_unfinished_one(last: dict[str, float]) -> None:
    limited = Objectives(("loss",), ("min",), {"gb": Limit(max=2.0)})
    simulation = searched(Broken(last), num_trials=20, objectives=limited).simulation
    scheduler = simulation.scheduler
    assert isinstance(scheduler, FreezeThaw)
    broken = {each.id for each in simulation.trials if each.position == len(RUNGS) and each.parameters["end"] < 0.3}
    assert broken
    again = FreezeThaw("steps", 1, 27, 3, SPACE, limited, DecisionLog(simulation.search.study))
    assert scheduler._model.bad == again._model.bad == broken
    assert not broken & scheduler._model.done.keys()


def test_where_early_values_tell_the_end_few_trials_go_on_and_the_best_finishes() -> None:
    search = searched(Curves(told=1.0))
    best = min(search.simulation.trials, key=lambda trial: trial.curve[-1].metrics["loss"])
    assert search.share_that_went_on() < 0.25
    assert best.number in search.finished()


@pytest.mark.slow
def test_where_early_values_tell_nothing_several_times_as_many_trials_go_on() -> None:
    nothing, everything = (
        np.mean([searched(Curves(told, is_of_point=False), seed=seed).share_that_went_on() for seed in range(3)])
        for told in (0.0, 1.0)
    )
    assert nothing > 3 * everything


@pytest.mark.slow
@pytest.mark.parametrize("is_of_point", [True, False])
def test_where_early_values_tell_nothing_a_search_usually_finds_what_full_trainings_at_the_same_cost_do(
    is_of_point: bool,
) -> None:
    """The best of ``n`` random trainings is expected to be ``1 / (n + 1)`` from the optimum."""
    found, expected = [], []
    for seed in range(5):
        sampler = CurveSampler(optuna.samplers.RandomSampler(seed=seed), SPACE, startup=8, seed=seed)
        search = searched(Curves(0.0, is_of_point=is_of_point), sampler=sampler)
        trials = search.simulation.trials
        found.append(min(trials[number].curve[-1].metrics["loss"] for number in search.finished()) - 1)
        trainings = sum(RUNGS[trial.position - 1] for trial in trials) / RUNGS[-1]
        expected.append(1 / (trainings + 1))
    assert np.median(found) < np.median(expected)


@pytest.mark.parametrize("told", [0.0, 0.5, 1.0])
def test_every_trial_ends_and_at_least_one_is_whole(told: float) -> None:
    for num_trials in (1, 2, 7):
        search = searched(Curves(told), num_trials=num_trials)
        assert all(trial.status == "ended" for trial in search.simulation.trials)
        assert search.finished()


@pytest.mark.parametrize(("told", "seed"), [(0.0, 4), (0.5, 0)])
@pytest.mark.parametrize("longest", [27, None])
def test_without_pauses_too_at_least_one_trial_is_whole(told: float, seed: int, longest: float | None) -> None:
    search = searched(Curves(told), num_trials=20, workers=4, seed=seed, longest=longest, pauses=False)
    assert search.finished()
    decisions = DecisionLog(search.simulation.search.study)
    again = FreezeThaw("steps", 1, longest, 3, SPACE, LOSS, pauses=False)
    assert [bool(again.repeat(*each)) for each in decisions.events] == [
        event.get(STOPS, False) for _, event in decisions.events
    ]
    reasons = [again.explain(name, event) for name, event in decisions.events if event["event"] == "arrived"]
    assert any("no trial had been trained to its end" in reason for reason in reasons if reason)


@pytest.fixture(scope="module")
def within_135_s() -> Search:
    return searched(Curves(told=0.8), num_trials=10_000, limit_s=135.0)


def test_at_the_end_of_a_budget_no_trial_starts_that_cannot_be_finished_and_the_best_paused_ones_are(
    within_135_s: Search,
) -> None:
    outcome = within_135_s.outcome
    assert all(began <= 135 - 27 + 1 for began, _ in outcome.seconds.values())
    assert outcome.wall_s > 135
    last = [report for report in outcome.reports if report.time_s > 108]
    assert any(report.step == 27 for report in last)


def test_new_trials_start_in_a_budget_in_which_no_training_could_end() -> None:
    search = searched(Curves(told=0.8), num_trials=10_000, limit_s=10.0)
    assert len(search.simulation.trials) > 6, "twice as many as run at once"
    assert any(report.step == 3 for report in search.outcome.reports)


def after(*events: dict[str, Any], longest: float = 27) -> FreezeThaw:
    """A scheduler that starts again after these decisions about the trials 0000, 0001, ... of which one paused."""
    study = optuna.create_study()
    for number, event in enumerate(events):
        added = {"event": "added", "point": {"end": 0.1 * number}}
        attributes = {
            NUMBER: number,
            f"{DECISION_PREFIX}{2 * number}": added,
            f"{DECISION_PREFIX}{2 * number + 1}": event,
        }
        study.add_trial(optuna.create_trial(value=0.0, user_attrs=attributes))
    return FreezeThaw("steps", 1, longest, 3, SPACE, LOSS, DecisionLog(study))


def arrival(**known: float) -> dict[str, Any]:
    return {"event": "arrived", "rung": 1.0, "value": -1.0, "pauses": True, **known}


def test_the_most_promising_trial_goes_on_while_most_steps_were_made_before_first_rungs() -> None:
    arrivals = [arrival(value=-1 - 0.1 * (number * 5 % 13)) for number in range(9)]
    scheduler = after(*arrivals)
    measured = scheduler._model.worth()
    assert measured is not None
    assert max(measured.trials.values()) < measured.new, "a new trial promises more than any"
    assert scheduler._worth_going_on() == ["0000"]
    told = scheduler.explain("0000", arrival(worth=0.3, new=0.4, pauses=False))
    assert told is not None
    assert "less than two thirds of all steps had been spent on continuing trials" in told
    assert not after(*arrivals, {"event": "done", "rung": 27.0, "value": -0.9})._is_behind()


def test_a_trial_that_paused_before_there_was_a_budget_takes_the_usual_time() -> None:
    assert not after(arrival(), arrival(seconds=1.0, left_s=20.0))._fits("0000")
    assert after(arrival(), arrival(seconds=1.0, left_s=30.0))._fits("0000")


def test_the_first_starts_after_a_restart_do_not_replace_the_cost_that_was_measured_before() -> None:
    study, places = optuna.create_study(), Places(1)
    earlier = [{"event": "added"}, *(arrival(rung=rung, start_cost=0.1) for rung in (1.0, 3.0, 9.0))]
    recorded = {f"{DECISION_PREFIX}{order}": event for order, event in enumerate(earlier)}
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs={NUMBER: 0, **recorded}))
    scheduler = FreezeThaw("steps", 1, 27, 3, SPACE, LOSS, DecisionLog(study))
    for number in range(1, 6):  # the first one waits for its workers
        study.ask().set_user_attr(NUMBER, number)
        trial = CurveTrial(f"{number:04}", [])
        scheduler.add(trial, places)
        scheduler.report(trial, {"steps": 1, "loss": 0.5, TIME_OF_REPORT: 1 + 27.0}, places)
        scheduler.report(trial, {"steps": 3, "loss": 0.4, TIME_OF_REPORT: 2.0}, places)
    costs = [event.get(START_COST) for _, event in DecisionLog(study).events if event["event"] == "arrived"]
    assert costs[-1] == pytest.approx(1.0)
    assert {cost for cost in costs[:-4] if cost is not None} == {0.1}


def test_a_trial_that_was_done_waits_at_its_old_end_when_its_sweep_is_extended_to_longer_ones() -> None:
    done = {"event": "done", "rung": 27.0, "value": -0.9}
    assert after(done)._is_done("0000")
    longer = after(done, longest=81)
    assert not longer._is_done("0000")
    assert longer._model.rungs() == [1, 3, 9, 27, 81]


@pytest.mark.parametrize(
    ("later", "pauses", "waits"),
    [([], True, True), ([], False, False), ([{"event": "added"}], True, False)],
    ids=["with pauses", "without pauses", "extended by an earlier release"],
)
def test_a_trial_that_has_become_longer_waits_where_trials_pause_unless_it_began_again_before(
    later: list[dict[str, Any]], pauses: bool, waits: bool
) -> None:
    done = {"event": "done", "rung": 27.0, "value": -0.9, "longer": True}
    events = ({"event": "added", "point": {"end": 0.1}}, done, {"event": "left"}, *later)
    attributes = {f"{DECISION_PREFIX}{order}": event for order, event in enumerate(events)}
    study = optuna.create_study()
    study.add_trial(optuna.create_trial(state=TrialState.RUNNING, user_attrs={NUMBER: 0, **attributes}))
    scheduler, places = FreezeThaw("steps", 1, 81, 3, SPACE, LOSS, DecisionLog(study), pauses=pauses), Places(2)
    places.begin("0000")
    assert scheduler.add(CurveTrial("0000", []), places) == waits
    assert is_running(study.get_trials()[0]) != waits


def test_after_a_budget_was_taken_away_every_trial_fits_again() -> None:
    assert after(arrival(seconds=1.0, left_s=20.0), arrival())._fits("0000")


def test_the_reason_of_a_decision_near_the_end_of_a_budget_is_the_budget(within_135_s: Search) -> None:
    told = {
        reason
        for number, event in DecisionLog(within_135_s.simulation.search.study).events
        if event["event"] == "arrived" and event["left_s"] < 27
        if (reason := after().explain(str(number), event)) is not None
    }
    assert told
    assert all("no new trial could end within the budget" in reason for reason in told)


@dataclass
class Uneven:
    """Losses of trainings whose seconds are uneven: they report every second, up to 12 to 36, the best ones longest."""

    def curve(self, point: Point) -> list[Report]:
        return [
            Report(step, float(step), {"loss": point["end"] + 1 / step})
            for step in range(1, 37 - int(24 * point["end"]))
        ]


def test_a_training_that_takes_longer_than_the_longest_has_no_rungs_behind_it() -> None:
    search = searched(Uneven(), num_trials=40, longest=20, resource="seconds")
    events = [event for _, event in DecisionLog(search.simulation.search.study).events if "rung" in event]
    assert {event["rung"] for event in events} == {1.0, 3.0, 9.0, 20.0}
    assert len([trial for trial in search.simulation.trials if trial.position > 27]) > 0


def test_a_training_that_ends_early_is_at_its_end_and_the_others_pause_at_later_rungs() -> None:
    search = searched(Uneven(), num_trials=40, longest=None, resource="seconds")
    decisions = DecisionLog(search.simulation.search.study)
    arrived = [(name, event) for name, event in decisions.events if event["event"] in ("arrived", "done")]
    done = [name for name, event in arrived if event["event"] == "done"]
    end = next(event["rung"] for _, event in arrived if event["event"] == "done")
    assert max(event["rung"] for _, event in arrived) > end
    assert max(event["worth"] for _, event in arrived if "worth" in event) < 10  # also before the first has ended
    lengths = {str(trial.number): float(trial.curve[-1].step) for trial in search.simulation.trials}
    assert {name: event["rung"] for name, event in arrived if event["event"] == "done"} == {
        name: lengths[str(int(name))] for name in done
    }
    scheduler = FreezeThaw("seconds", 1, None, 3, SPACE, LOSS, decisions)
    worth = scheduler._model.worth()
    assert worth is not None
    best = min(done, key=lambda name: search.simulation.trials[int(name)].curve[-1].metrics["loss"])
    assert next(name for name in worth.rankings[0] if name in done) == best


@pytest.mark.parametrize(
    "wider",
    [
        {"end": FloatDistribution(type="float", low=-9, high=1)},
        {"end": SPACE["end"], "kind": CategoricalDistribution(type="categorical", choices=["a", "b", "c"])},
    ],
)
def test_a_scheduler_knows_the_points_of_earlier_trials_in_a_space_that_was_widened(wider: dict[str, Any]) -> None:
    kinds = {"kind": CategoricalDistribution(type="categorical", choices=["a", "b"])} if "kind" in wider else {}
    search = searched(Curves(told=0.8), num_trials=12, space=Space(dict(SPACE.distributions) | kinds))
    decisions = DecisionLog(search.simulation.search.study)
    scheduler = FreezeThaw("steps", 1, 27, 3, Space(wider), LOSS, decisions)
    for trial in search.simulation.trials:
        point = trial.parameters
        assert scheduler._model._vectors[trial.id] == pytest.approx(UnitCube(Space(wider)).vector(point))
    assert scheduler._model.worth() is not None


def test_a_paused_trial_goes_on_when_it_turns_out_to_be_worth_it() -> None:
    searches = (searched(Curves(told=0.7), num_trials=40, seed=seed) for seed in range(4))
    assert any(
        trial.position == len(RUNGS) and search.outcome.seconds[trial.number][1] - trial.began > 27
        for search in searches
        for trial in search.simulation.trials
    )


@dataclass
class Opposed:
    """Two losses of which one is small where the other is large; early values tell the end."""

    def curve(self, point: Point) -> list[Report]:
        def losses(step: int) -> dict[str, float]:
            return {"loss": point["end"] + 1 / step, "seconds": (1 - point["end"]) ** 2 + 1 / step}

        return [Report(step, float(step), losses(step)) for step in RUNGS]


def test_a_trial_whose_last_report_lacks_an_objective_has_not_diverged() -> None:
    objectives = Objectives(("loss", "seconds"), ("min", "min"))
    study, places, trial = optuna.create_study(directions=["minimize", "minimize"]), Places(1), CurveTrial("0000", [])
    study.ask().set_user_attr(NUMBER, 0)
    scheduler = FreezeThaw("steps", 1, 27, 3, SPACE, objectives, DecisionLog(study))
    scheduler.add(trial, places)
    scheduler.report(trial, {"steps": 1, "loss": 0.5, "seconds": 2.0}, places)
    scheduler.complete(trial, {"steps": 27, "loss": 0.3, COMPLETED: True}, places)
    events = [event["event"] for _, event in DecisionLog(study).events]
    assert events == ["added", "arrived", "left"]


def test_with_several_objectives_trials_that_are_good_in_any_of_them_go_on() -> None:
    finished = {}
    for objectives in (LOSS, Objectives(("loss", "seconds"), ("min", "min"))):
        search = searched(Opposed(), objectives=objectives)
        ends = [search.simulation.trials[number].parameters["end"] for number in search.finished()]
        finished[len(objectives.metrics)] = ends
        assert len(ends) < 40
    assert max(finished[1]) < 0.8, "by the first objective alone"
    assert min(finished[2]) < 0.1
    assert max(finished[2]) > 0.9
