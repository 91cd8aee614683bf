"""A long search: its sampler sees the best trials and a part of the others, or the best and the newest."""

from __future__ import annotations

import random
from typing import Any, Literal

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers._tpe import sampler as tpe_sampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from spaces import sampler_of

from sweeps.search import FloatDistribution as Range
from sweeps.search import Space, build_sampler
from sweeps.search.samplers.limited_history import LimitedHistorySampler, newest

RANGE = FloatDistribution(0.0, 1.0)
Direction = Literal["minimize", "maximize"]


def trial(x: float, state: TrialState = TrialState.COMPLETE, steps: int = 1, excess: float = 0.0) -> FrozenTrial:
    reported = dict.fromkeys(range(1, steps + 1), x)
    value = x if state is TrialState.COMPLETE else None
    constraints = {"memory": excess} if excess else None
    return create_trial(
        state=state,
        value=value,
        params={"x": x},
        distributions={"x": RANGE},
        intermediate_values=reported,
        constraints=constraints,
    )


def study(trials: list[FrozenTrial], direction: Direction = "minimize") -> optuna.Study:
    made = optuna.create_study(direction=direction)
    made.add_trials(trials)
    return made


def test_a_short_study_is_seen_whole() -> None:
    whole = study([*[trial(0.1)] * 5, trial(0.1, TrialState.FAIL)])
    whole.ask({"x": RANGE})
    sampler = LimitedHistorySampler(optuna.samplers.RandomSampler(), most=5, best=2)
    assert [each.number for each in sampler.trials(whole)] == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_of_a_long_study_the_best_are_seen_and_the_others_evenly(direction: Direction) -> None:
    best = 0.0 if direction == "minimize" else 1.0
    values = [0.5] * 90
    values[7] = values[70] = best
    sampler = LimitedHistorySampler(optuna.samplers.RandomSampler(), most=13, best=2)
    seen = [each.number for each in sampler.trials(study([trial(value) for value in values], direction))]
    assert seen == sorted({7, 70, 0, 9, 17, 25, 33, 41, 49, 57, 65, 74, 82})


def test_trials_that_end_later_and_those_of_another_study_are_seen_as_they_are() -> None:
    sampler = LimitedHistorySampler(optuna.samplers.RandomSampler(), most=6, best=3)

    def seen(whole: optuna.Study) -> list[int]:
        found = [each.number for each in sampler.trials(whole)]
        fresh = LimitedHistorySampler(optuna.samplers.RandomSampler(), most=6, best=3)
        assert found == [each.number for each in fresh.trials(whole)]
        return found

    draw, growing = random.Random(0), study([trial(0.5)] * 9)
    running = [growing.ask({"x": RANGE}) for _ in range(20)]
    for each in draw.sample(running, 20):
        growing.tell(each, draw.random() / 2)
        seen(growing)
    best = sorted(growing.trials, key=lambda each: (each.value, each.number))[:3]
    assert {each.number for each in best} <= {*seen(growing)}
    assert {12, 13, 14} <= {*seen(study([trial(1.0)] * 12 + [trial(0.1)] * 3))}


def test_trials_without_a_value_are_in_the_order_of_tpe() -> None:
    trials = [
        trial(0.9),
        trial(0.0, excess=1.0),
        trial(0.2, TrialState.PRUNED, steps=2),
        trial(0.1, TrialState.PRUNED, steps=1),
        trial(0.3, TrialState.PRUNED, steps=2),
        *[trial(0.0, TrialState.PRUNED, steps=0)] * 20,
    ]
    for best, expected in ((1, {0}), (2, {0, 2}), (3, {0, 2, 4}), (4, {0, 2, 3, 4})):
        sampler = LimitedHistorySampler(optuna.samplers.RandomSampler(), most=best, best=best)
        assert {each.number for each in sampler.trials(study(trials))} == expected


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_the_suggestions_of_a_short_study_are_those_of_tpe_alone() -> None:
    def tpe(seed: int) -> optuna.samplers.TPESampler:
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)

    def suggested(sampler: optuna.samplers.BaseSampler, seed: int) -> list[dict[str, object]]:
        """Points of a space with a condition; every third trial is pruned, and every seventh still runs."""
        searched, draw = optuna.create_study(sampler=sampler), random.Random(seed)
        for number in range(60):
            made = searched.ask()
            x = made.suggest_float("x", 0, 1)
            kind = made.suggest_categorical("kind", ["a", "b"])
            y = made.suggest_float("y", 0, 1) if kind == "a" else made.suggest_int("z", 1, 9) / 9
            value = abs(x - 0.3) + y + draw.random() / 9
            if number % 7 == 6:
                continue
            made.report(value, 1)
            pruned = number % 3 == 0
            searched.tell(made, None if pruned else value, TrialState.PRUNED if pruned else TrialState.COMPLETE)
        return [each.params for each in searched.trials]

    assert suggested(LimitedHistorySampler(tpe(1), most=51, best=5), 1) == suggested(tpe(1), 1)


@pytest.mark.parametrize("kind", ["tpe", "bohb"])
@pytest.mark.parametrize(
    ("num_ended", "num_rejected", "num_running", "seen"), [(2000, 0, 0, 400), (200, 300, 64, 264), (500, 0, 64, 464)]
)
def test_the_samplers_that_are_built_learn_from_400_ended_trials_of_a_long_search_and_from_all_running_ones(
    kind: str, num_ended: int, num_rejected: int, num_running: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, split = [], tpe_sampler._split_trials

    def counted(searched: optuna.Study, trials: list[FrozenTrial], *rest: Any) -> Any:
        counts.append(len(trials))
        return split(searched, trials, *rest)

    monkeypatch.setattr(tpe_sampler, "_split_trials", counted)
    others = [trial(0.5, TrialState.FAIL)] * num_rejected + [trial(0.5, TrialState.RUNNING, steps=0)] * num_running
    searched = study([*others, *[trial(index % 1000 / 1000) for index in range(num_ended)]])
    searched.sampler = build_sampler(sampler_of(kind), 0, Space({"x": Range(type="float", low=0.0, high=1.0)}))
    searched.ask({"x": RANGE})
    assert counts == [seen]


@pytest.mark.parametrize(("direction", "value", "other"), [("minimize", 0.0, 0.5), ("maximize", 1.0, 0.5)])
def test_of_the_finished_trials_of_a_long_study_the_best_and_the_newest_are_seen_and_of_the_others_all(
    direction: Direction, value: float, other: float
) -> None:
    trials = [trial(other) for _ in range(20)]
    trials[3] = trials[18] = trial(value)
    trials[5] = trial(value, excess=1.0)  # violates a limit
    trials[7] = trial(value, TrialState.PRUNED)
    whole = study(trials, direction)
    running = whole.ask({"x": RANGE})
    complete = (TrialState.COMPLETE,)
    random = optuna.samplers.RandomSampler()
    sampler = LimitedHistorySampler(random, most=5, best=2, others=newest, states=complete)
    assert [each.number for each in sampler.trials(whole)] == [3, 7, 16, 17, 18, 19, running.number]
    short = LimitedHistorySampler(random, most=19, best=2, others=newest, states=complete)
    assert len(short.trials(whole)) == 21


def test_the_gaussian_process_that_is_built_learns_from_300_finished_trials_of_a_long_search() -> None:
    space = Space({"x": Range(type="float", low=0.0, high=1.0)})
    sampler = build_sampler(sampler_of(kind="gp"), 0, space)
    assert isinstance(sampler, LimitedHistorySampler)
    assert len(sampler.trials(study([trial(0.5)] * 1000))) == 300
