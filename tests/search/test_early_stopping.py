"""ASHA, which compares a report with earlier ones and stops the trial."""

from __future__ import annotations

import math
import random
from itertools import count, takewhile

import numpy as np
import optuna
import pytest
from scheduling import LOSS, Controller, random_curves

from sweeps.config.objectives import Objectives
from sweeps.config.search import Mode
from sweeps.constants import DECISION_PREFIX, NUMBER
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.schedulers.scheduler import Verdict

CONTINUE, STOP = Verdict.CONTINUE, Verdict.STOP


# --- asha -------------------------------------------------------------------------------------------------
def asha_truth(
    seen: dict[float, list[float]], milestones: list[float], done: set[float], time: float, loss: float, eta: float
) -> bool:
    """Whether a report stops its trial: it is worse than the best 1/eta of those at its rung before."""
    reached = [rung for rung in milestones if rung <= time]
    if not reached or reached[-1] in done or any(rung > reached[-1] for rung in done):
        return False
    rung = reached[-1]
    done.add(rung)
    before = seen.setdefault(rung, [])
    stops = bool(before) and -loss < np.percentile([-each for each in before], (1 - 1 / eta) * 100)
    before.append(loss)
    return stops


@pytest.mark.parametrize(
    ("grace", "eta", "stride"), [(1, 3, 1), (2, 2, 1), (1, 4, 3), (0.5, 2, 0.7), (100, 3, 64), (1, 1.02, 1)]
)
def test_asha_stops_what_is_worse_than_the_best_of_those_before_it_at_the_same_rung(
    grace: float, eta: float, stride: float
) -> None:
    milestones = list(takewhile(lambda rung: rung < 1000, (grace * eta**index for index in count())))
    for seed in range(20):
        chance = random.Random(seed)
        controller = Controller(Asha("steps", grace, eta, 1, seed, LOSS), "steps", places=4)
        seen: dict[float, list[float]] = {}
        done: dict[str, set[float]] = {}
        trials = [controller.add(name, curve) for name, curve in random_curves(9, 10, seed, stride).items()]
        while running := [trial for trial in trials if trial.status == "running"]:
            trial = chance.choice(running)  # reports come in any order
            time, loss = trial.curve[trial.position]
            stops = asha_truth(seen, milestones, done.setdefault(trial.id, set()), time, loss, eta)
            decision = controller.report(trial)
            assert decision in ("DONE", STOP if stops else CONTINUE), (seed, trial, time)


def test_asha_compares_trials_at_a_rung_that_is_a_fraction_and_was_rounded_up() -> None:
    assert 0.1 * 3 > 0.3
    controller = Controller(Asha("epochs", 0.1, 3, 1, 0, LOSS), "epochs", places=2)
    better, worse = (controller.add(str(loss), [(0.1, 0.5), (0.3, loss), (0.4, loss)]) for loss in (0.1, 0.2))
    assert [controller.report(trial) for trial in (better, worse, better, worse)] == [CONTINUE] * 3 + [STOP]


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_asha_stops_what_is_nan_or_infinitely_bad_once_it_has_had_its_grace_and_compares_nothing_with_it(
    mode: Mode, bad: float
) -> None:
    objectives = Objectives(("loss",), (mode,))
    controller = Controller(Asha("steps", 2, 3, 1, 0, objectives), "steps", places=9)
    sign = 1 if mode == "min" else -1
    decisions = []
    for number, loss in enumerate((bad, 1, bad, bad, bad, 2, 0.5)):
        trial = controller.add(f"{number}", [(1, sign * bad), (2, sign * loss), (3, 0)])
        assert controller.report(trial) == CONTINUE
        decisions.append(controller.report(trial))
    assert decisions == [STOP, CONTINUE, STOP, STOP, STOP, STOP, CONTINUE]


def test_asha_compares_nothing_with_a_value_that_is_infinitely_good() -> None:
    controller = Controller(Asha("steps", 1, 3, 1, 0, LOSS), "steps", places=9)
    losses = (-math.inf, 1, -math.inf, 2)
    trials = [controller.add(f"{number}", [(1, loss), (2, 0)]) for number, loss in enumerate(losses)]
    assert [controller.report(trial) for trial in trials] == [CONTINUE, CONTINUE, CONTINUE, STOP]


def recorded(*decisions: dict[str, object]) -> optuna.Study:
    """A study in which an earlier release let each trial go on at the first rung."""
    study = optuna.create_study()
    for number, decision in enumerate(decisions):
        trial = study.ask()
        trial.set_user_attr(NUMBER, number)
        trial.set_user_attr(f"{DECISION_PREFIX}{number}", {"reached": 1.0, "stops": False, **decision})
    return study


def test_asha_reads_infinitely_bad_values_that_earlier_versions_recorded() -> None:
    study = recorded({"reward": "-inf"}, {"reward": "-inf"}, {"reward": -1.0})
    controller = Controller(Asha("steps", 1, 3, 1, 0, LOSS, DecisionLog(study)), "steps", places=9)
    study.ask().set_user_attr(NUMBER, 3)
    assert controller.report(controller.add("0003", [(1, 2.0), (2, 0.0)])) == STOP


def test_asha_lets_a_trial_that_never_reaches_the_first_rung_come_to_its_end() -> None:
    controller = Controller(Asha("tokens", 1000, 3, 1, 0, LOSS), "tokens", places=3)
    good = controller.add("good", [(500, 0.1), (1500, 0.1), (1600, 0.1)])
    assert [controller.report(good), controller.report(good)] == [CONTINUE, CONTINUE]
    short = controller.add("short", [(300, 9.0), (600, 9.0), (900, 9.0)])
    assert [controller.report(short) for _ in range(3)] == [CONTINUE, CONTINUE, "DONE"]


def test_a_report_that_asha_hears_again_after_a_retry_changes_nothing() -> None:
    def decisions(*, retried: bool) -> list[str]:
        controller = Controller(Asha("steps", 1, 2, 1, 0, LOSS), "steps", places=3)
        first = controller.add("a", [(1, 0.5), (2, 0.5), (3, 0.5)])
        controller.report(first)
        if retried:
            controller.scheduler.leave(first, controller.places)
            controller.scheduler.add(first, controller.places)
            first.position = 0
            controller.report(first)
        return [
            controller.report(controller.add(name, [(1, loss), (2, 0)]))
            for name, loss in (("b", 0.4), ("c", 0.45), ("d", 0.6))
        ]

    assert decisions(retried=False) == decisions(retried=True) == [CONTINUE, CONTINUE, STOP]


def test_asha_goes_on_with_what_median_of_an_earlier_release_has_recorded() -> None:
    study = recorded({"value": 1.0}, {"value": 2.0}, {"value": 3.0})
    controller = Controller(Asha("steps", 1, 2, 1, 0, LOSS, DecisionLog(study)), "steps", places=9)
    for number, value, decision in ((3, 2.5, STOP), (4, 1.5, CONTINUE)):
        study.ask().set_user_attr(NUMBER, number)
        assert controller.report(controller.add(f"{number:04}", [(1, value), (2, 0.0)])) == decision
