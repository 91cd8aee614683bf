"""``search=auto``: which scheduler it chooses and why, and that it works with whatever else a search has."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from sweeps.constants import CHECKPOINT_TIME, RESTARTED, SAVED, TIME_OF_REPORT
from sweeps.plan.build_scheduler import build_scheduler
from sweeps.plan.plan import Plan, make_plan
from sweeps.plan.searcher_options import searcher_options
from sweeps.search.schedulers.automatic import Automatic
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.trial_overhead import TrialOverhead
from sweeps.search.study_search import StudySearch
from sweeps.simulate.recorded_table import Report
from sweeps.simulate.simulation import SimulatedTrial, Simulation
from sweeps.space.space import Point

EVALUATIONS = 9
ONE_LR = ("~space", "train.lr=tag(log, interval(1e-4, 1e-1))")
Extra = Callable[[int], dict[str, Any]]


def planned(*tokens: str, conf: str = "digits") -> Plan:
    if conf == "digits":
        tokens = ("search.metric=eval/loss", "search.mode=min", *tokens)
    return make_plan([f"conf={conf}", *tokens], [], "automatic", "", where="elsewhere")


@dataclass
class Curves:
    """Losses that fall towards what the learning rate gives, and what else each report has."""

    extra: Extra

    def curve(self, point: Point) -> list[Report]:
        end = abs(math.log10(point.get("train.lr", 1e-2)) + 2) + point.get("model.dropout", 0.0)
        return [
            Report(22 * count, float(count), {"eval/loss": end + 1 / count, "train/loss": -end, **self.extra(count)})
            for count in range(1, EVALUATIONS + 1)
        ]


@dataclass
class Search:
    study: optuna.Study
    simulation: Simulation
    events: list[dict[str, Any]]

    def count(self, state: TrialState) -> int:
        return sum(trial.state is state for trial in self.study.get_trials(deepcopy=False))

    def have(self, key: str) -> bool:
        """Whether any decision has this."""
        return any(event.get(key) for event in self.events)


def searched(plan: Plan, extra: Extra = lambda count: {}, workers: int = 3) -> Search:
    searcher = StudySearch(plan.space, **searcher_options(plan))
    simulation = Simulation(searcher, build_scheduler(plan, DecisionLog(searcher.study)), Curves(extra), workers)
    simulation.run()
    events = [event for _, event in DecisionLog(searcher.study).events]
    return Search(searcher.study, simulation, events)


def timed(seconds: float = 10.0, begin: float = 0.0, saving: float = 0.0, *, saved: bool = True) -> Extra:
    """Time that a worker reports: seconds between evaluations, to begin at all, and to save."""
    return lambda count: {
        TIME_OF_REPORT: seconds + saving + (begin if count == 1 else 0.0),
        CHECKPOINT_TIME: saving * count,
        SAVED: saved,
    }


def test_the_first_report_after_a_failure_tells_nothing_about_the_time_between_two_evaluations() -> None:
    overhead = TrialOverhead("steps")
    for trial in "abc":
        overhead.begin(trial, counts=True)
        overhead.report(trial, {"steps": 1, TIME_OF_REPORT: 10.0, CHECKPOINT_TIME: 1.0})
    for trial in "abc":
        overhead.report(trial, {"steps": 2, TIME_OF_REPORT: 100.0, CHECKPOINT_TIME: 0.0, RESTARTED: True})
    assert overhead.of_training(10.0) is None
    for trial, seconds in (("a", 1.0), ("a", 2.0), ("b", 1.0), ("c", 1.0)):
        assert not overhead.is_reliable
        overhead.report(trial, {"steps": 2 + seconds, TIME_OF_REPORT: 10.0, CHECKPOINT_TIME: seconds})
    assert overhead.is_reliable
    assert overhead.of_training(None) is None
    assert overhead.of_training(10.0) == pytest.approx((0.0, 1 / 9))


def test_a_start_is_what_the_first_report_takes_longer_than_its_training() -> None:
    overhead = TrialOverhead("steps")
    for trial in "abc":
        overhead.begin(trial, counts=True)
        overhead.report(trial, {"steps": 4, TIME_OF_REPORT: 10.0})
    for step in (5, 7, 8, 11):
        overhead.report("a", {"steps": step, TIME_OF_REPORT: 2.0 * (step - overhead._last["a"].resource)})
        overhead.report("b", {"steps": math.inf, TIME_OF_REPORT: 2.0})  # a function's own count
    assert overhead.of_training(20.0) == pytest.approx(((10 - 8) / 40, 0.0))
    overhead.begin("a", counts=True)
    for trial in "bcd":  # continued or new, with a start of six seconds
        overhead.begin(trial, counts=True)
        overhead.report(trial, {"steps": 8, TIME_OF_REPORT: 6.0 + 2.0 * (8 if trial == "d" else 4)})
    overhead.report("a", {"steps": 12, TIME_OF_REPORT: 6.0 + 2.0})
    for trial in "bcd":
        overhead.report(trial, {"steps": 9, TIME_OF_REPORT: 2.0})
    assert overhead.of_training(20.0) == pytest.approx((6 / 40, 0.0))


def test_slow_trials_do_not_seem_to_take_long_to_start() -> None:
    """Batch sizes and ranks of a space change the time of a step."""
    overhead = TrialOverhead("steps")
    paces = {"a": 1.0, "b": 2.0, "c": 4.0}
    for trial, pace in paces.items():
        overhead.begin(trial, counts=True)
        overhead.report(trial, {"steps": 8, TIME_OF_REPORT: 9.0 * pace + 1.0, CHECKPOINT_TIME: 1.0})
    for step in (16, 24, 32, 40):
        overhead.report("a", {"steps": step, TIME_OF_REPORT: 8.0, CHECKPOINT_TIME: 1.0})
    assert not overhead.is_reliable
    for trial in "bc":
        overhead.report(trial, {"steps": 16, TIME_OF_REPORT: 8.0 * paces[trial], CHECKPOINT_TIME: 1.0})
    assert overhead.is_reliable
    assert overhead.of_training(100.0) == pytest.approx((1 / 100, 0.0))


def test_what_a_trial_of_an_earlier_session_reports_first_tells_nothing_about_its_start() -> None:
    """It may only repeat the report of the checkpoint from which it continues."""
    plan = planned(*ONE_LR)
    searcher = StudySearch(plan.space, **searcher_options(plan))
    suggested = [searcher.next_trial() for _ in range(3)]
    trials = [SimulatedTrial(each.number, dict(each.point), [], 0.0) for each in suggested if each is not None]

    def measured(*begun: SimulatedTrial) -> list[float]:
        scheduler, places = build_scheduler(plan, DecisionLog(searcher.study)), Places(1)
        assert isinstance(scheduler, Automatic)
        for trial in begun:
            scheduler.add(trial, places)
        for trial in begun:
            scheduler.report(trial, {scheduler._resource: 1, TIME_OF_REPORT: 1.0, SAVED: True}, places)
        return [seconds for _, seconds, _ in scheduler._overhead._starts]

    assert len(measured(*trials[:2])) == 1  # the first one waited for the start of the workers
    assert measured(*trials[:2]) == []
    assert len(measured(*trials)) == 1


# --- what is chosen ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "overrides", "reason"),
    [
        ("digits", ["train.eval_every=99"], "with 2 evaluations a trial reaches too few rungs to pause at"),
        ("digits", ["checkpoint.every=198"], "with checkpoint.every=198 some evaluations have no checkpoint"),
        ("command", ["~task.checkpoints", "~task.options"], "the program saves no checkpoints"),
    ],
)
def test_where_the_config_tells_that_no_trial_can_pause_trials_are_stopped(
    conf: str, overrides: list[str], reason: str
) -> None:
    plan = planned(*overrides, conf=conf)
    assert f"scheduler freeze_thaw without pauses, since {reason}" in plan.search_summary
    trial = plan.composition.trial(plan.points.default()[0])
    assert not trial.search.pauses_trials


def test_trials_that_cannot_pause_are_stopped_if_new_ones_promise_more() -> None:
    search = searched(planned("checkpoint.every=198", "train.eval_every=22", "search.num_trials=24", *ONE_LR))
    judged = [event for event in search.events if "worth" in event]
    assert {event["stops"] for event in judged} == {False, True}
    assert not [event for event in judged if event["worth"] >= event["new"] and event["stops"]]
    assert not search.have("pauses")
    assert search.count(TrialState.PRUNED) >= 1
    assert search.count(TrialState.COMPLETE) >= 1


def test_trials_that_report_little_time_for_a_pause_are_paused_and_one_line_says_so() -> None:
    search = searched(planned("search.num_trials=16", *ONE_LR), timed(begin=0.5, saving=0.1))
    chosen = [event for event in search.events if event["event"] == "chosen"]
    assert [event["pauses_trials"] for event in chosen] == [True]
    assert chosen[0]["reason"] == "the less promising trials are paused, which costs 1.6% of a training"
    assert search.have("pauses")
    assert search.count(TrialState.COMPLETE) >= 1


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (timed(saving=1.0), "saving and restarting would take 10% of a training, more than 5%"),
        (timed(seconds=0.1, begin=2.0), "would take 222% of a training"),
        (timed(saved=False), "the trials report without checkpoints"),
    ],
)
def test_trials_whose_pauses_cost_much_are_stopped_from_then_on(extra: Extra, reason: str) -> None:
    search = searched(planned("search.num_trials=24", *ONE_LR), extra)
    places = [place for place, event in enumerate(search.events) if event["event"] == "chosen"]
    assert len(places) == 1
    assert reason in search.events[places[0]]["reason"]
    assert not any(event.get("pauses") for event in search.events[places[0] :])
    judged = [event for event in search.events[places[0] :] if "stops" in event and "worth" in event]
    assert {event["stops"] for event in judged} == {True, False}
    assert all(event["worth"] < event["new"] for event in judged if event["stops"])  # a new trial promised more
    assert search.simulation.scheduler.may_pause is False
    assert search.count(TrialState.COMPLETE) >= 1
    assert search.count(TrialState.RUNNING) == 0


def test_the_dearer_it_is_to_start_a_trial_the_more_trials_go_on_also_after_a_restart() -> None:
    plan = planned("search.num_trials=30", *ONE_LR)
    cheap, dear = (searched(plan, timed(begin=seconds, saved=False)) for seconds in (0.0, 270.0))
    assert [event for event in dear.events if event.get("start_cost") == pytest.approx(3.0)]
    assert dear.count(TrialState.COMPLETE) > 1.5 * cheap.count(TrialState.COMPLETE)
    resumed = build_scheduler(plan, DecisionLog(dear.study))
    assert isinstance(resumed, Automatic)
    assert resumed._model.start_cost == pytest.approx(3.0)


def test_a_given_length_is_that_by_which_a_pause_is_judged() -> None:
    """11% of the nine evaluations that the config tells are 1% of those that are given."""
    search = searched(planned("search.num_trials=20", "search.scheduler.longest=90", *ONE_LR), timed(begin=10.0))
    assert [event["pauses_trials"] for event in search.events if event["event"] == "chosen"] == [True]


def test_a_choice_holds_for_the_sessions_that_follow() -> None:
    plan = planned("search.num_trials=24", *ONE_LR)
    search = searched(plan, timed(saved=False))
    later = build_scheduler(plan, DecisionLog(search.study))
    again = build_scheduler(plan, DecisionLog())
    trial = search.simulation.trials[0]
    assert [later.may_pause, again.may_pause] == [False, True]
    recorded = [event.get("stops", event.get("pauses", False)) for _, event in DecisionLog(search.study).events]
    repeated = [bool(again.repeat(*each)) for each in DecisionLog(search.study).events]
    assert repeated == recorded, trial


# --- what it works with ------------------------------------------------------------------------------------------


def test_several_objectives() -> None:
    search = searched(planned("search.metric=[eval/loss, train/loss]", "search.mode=[min, min]"))
    assert search.count(TrialState.COMPLETE) >= 2
    assert search.have("further")


def test_a_grid_is_searched_to_its_end() -> None:
    plan = planned("search/sampler=grid", "~space", "train.lr=choice(0.0001, 0.001, 0.01, 0.1)", "search.num_trials=99")
    search = searched(plan)
    assert sorted(trial.params["train.lr"] for trial in search.study.trials) == [0.0001, 0.001, 0.01, 0.1]
    assert search.count(TrialState.COMPLETE) >= 1


def test_a_finite_space_ends_when_every_point_was_trained() -> None:
    search = searched(planned("~space", "train.lr=choice(0.0001, 0.001, 0.01, 0.1)", "search.num_trials=99"))
    started = [trial for trial in search.study.trials if "sweeps:trial" in trial.user_attrs]
    assert sorted(trial.params["train.lr"] for trial in started) == [0.0001, 0.001, 0.01, 0.1]


def test_conditional_parameters_constraints_and_given_points() -> None:
    given = "search.points=[{train.lr: 0.05, model.dropout: 0.25}]"
    constraint = "search.constraints=['model.dropout <= 10 * train.lr or train.lr > 0.01']"
    search = searched(planned("search.num_trials=30", constraint, given, "search.default_first=false"))
    points = [trial.parameters for trial in search.simulation.trials]
    assert (points[0]["train.lr"], points[0]["model.dropout"]) == (0.05, 0.25)
    assert all(("model.depth" in point) == (point["model"] == "vision_transformer") for point in points)
    assert all(each["model.dropout"] <= 10 * each["train.lr"] or each["train.lr"] > 0.01 for each in points)
    assert search.have("pauses")


def test_trials_of_earlier_nights(tmp_path: Path) -> None:
    file = tmp_path / "earlier.csv"
    with file.open("w", newline="", encoding="utf-8") as rows:
        writer = csv.writer(rows)
        writer.writerow(["train.lr", "eval/loss"])
        writer.writerows([10**-exponent, 0.1 + abs(exponent - 2)] for exponent in (1.0, 1.5, 2.0, 2.5, 3.0, 3.5))
    warm = f"search.warm_start=[{{kind: table, path: {file}, metric: eval/loss}}]"
    search = searched(planned("search.num_trials=10", "search.default_first=false", warm, *ONE_LR))
    first = search.simulation.trials[0].parameters["train.lr"]
    assert first == pytest.approx(0.01), "the best point of before"
    assert search.count(TrialState.COMPLETE) >= 1


def test_stages() -> None:
    stage = "search.stages=[{overrides: ['train.max_steps=66'], num_trials: 6, keep: 2}]"
    plan = planned("search.num_trials=6", stage, *ONE_LR)
    search = searched(plan.in_stage(1))
    assert len(search.simulation.trials) == 6
    assert search.count(TrialState.RUNNING) == 0


def test_hundreds_of_trials_after_a_thousand() -> None:
    plan = planned("search.num_trials=1040", *ONE_LR)
    searcher = StudySearch(plan.space, **searcher_options(plan))
    distributions = {"train.lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True)}
    for number in range(1000):
        lr = 10 ** -(1 + 3 * (number * 0.618 % 1))
        known = {"params": {"train.lr": lr}, "distributions": distributions, "user_attrs": {"sweeps:trial": number}}
        values = {step * 22: abs(math.log10(lr) + 2) + 1 / step for step in (1, 3)}
        trial = optuna.trial.create_trial(state=TrialState.PRUNED, intermediate_values=values, **known)
        searcher.study.add_trial(trial)
    searcher = StudySearch(plan.space, storage=searcher.study._storage, study_name=searcher.study.study_name,
                              **searcher_options(plan))  # fmt: skip
    simulation = Simulation(searcher, build_scheduler(plan, DecisionLog(searcher.study)), Curves(lambda count: {}), 4)
    simulation.run()
    assert len(simulation.trials) == 40
    near = [abs(math.log10(trial.parameters["train.lr"]) + 2) for trial in simulation.trials]
    assert sorted(near)[len(near) // 2] < 0.3, "by chance it would be 0.75"
