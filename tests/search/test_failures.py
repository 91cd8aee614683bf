"""Failures: their classification, and an advisor that avoids repeating them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from processes import run_python
from spaces import space_of

from sweeps.constants import NUMBER, REASON
from sweeps.search.advisors.failures import FailureAdvisor, classify

SPACE = space_of(
    {
        "train.lr": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
        "train.weight_decay": {"type": "float", "low": 0, "high": 1},
        "train.batch_size": {"type": "int", "low": 8, "high": 512, "log": True},
        "model.width": {"type": "int", "low": 16, "high": 1024, "log": True},
        "train.optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
    }
)
Point = Mapping[str, Any]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        ("Task was killed due to the node running low on memory.", "out of memory"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes", "out of memory"),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 3 TiB", "out of memory"),
        ("MemoryError", "out of memory"),
        ("eval/loss=nan", "diverged"),
        ("eval/loss=inf", "diverged"),
        ("FloatingPointError: the loss is not finite at step 3", "diverged"),
        ("RuntimeError: shapes cannot be multiplied", "crashed"),
        ("error", "crashed"),
        ("ValueError: no information on this finance table", "crashed"),
        ("stopped by a person", None),
        ("the node died unexpectedly", None),
    ],
)
def test_the_text_of_an_error_says_what_kind_of_failure_it_was(reason: str, kind: str | None) -> None:
    assert classify(reason) == kind


class Search:
    """Asks a study for points, and tells it how they ended."""

    def __init__(self, advise: bool, seed: int = 0):
        self.study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
        self.advisor = FailureAdvisor(SPACE) if advise else None
        self.refused = self.failed = 0

    def next_point(self) -> tuple[optuna.Trial, Point]:
        """Suggest as the searcher does: after ten refused points the next one is accepted."""
        for attempt in range(11):
            trial = self.study.ask()
            point = SPACE.sample(trial, lambda path: None)
            reason = self.advisor.refuse(self.study, point) if self.advisor else None
            if reason is None or attempt == 10:
                break
            self.refused += 1
            trial.set_user_attr(REASON, reason)
            self.study.tell(trial, state=TrialState.FAIL)
        return trial, point

    def run(self, why: Callable[[Point], str | None], trials: int) -> float:
        """Share of trials that failed, after the first 20."""
        for number in range(20 + trials):
            if number == 20:
                self.failed = 0
            trial, point = self.next_point()
            self.end(trial, number, why(point))
        return self.failed / trials

    def end(self, trial: optuna.Trial, number: int, reason: str | None) -> None:
        trial.set_user_attr(NUMBER, number)
        if reason is None:
            self.study.tell(trial, 1.0)
        else:
            self.failed += 1
            trial.set_user_attr(REASON, reason)
            self.study.tell(trial, state=TrialState.FAIL)

    def ended(self, reason: str | None, **point: Any) -> None:
        self.study.enqueue_trial({path.replace("__", "."): value for path, value in point.items()})
        trial = self.study.ask()
        SPACE.sample(trial, lambda path: None)
        self.end(trial, len(self.study.trials), reason)


def diverges(point: Point) -> str | None:
    return "eval/loss=nan" if point["train.lr"] > 1e-2 else None


def runs_out(point: Point) -> str | None:
    return "CUDA out of memory" if point["train.batch_size"] * point["model.width"] > 2**14 else None


@pytest.mark.parametrize(
    ("why", "at_most"),
    [
        pytest.param(diverges, 0.5, id="diverged", marks=pytest.mark.slow),
        pytest.param(runs_out, 0.7, id="out of memory", marks=pytest.mark.slow),
    ],
)
def test_far_fewer_trials_are_wasted_where_they_failed_before(
    why: Callable[[Point], str | None], at_most: float
) -> None:
    without = sum(Search(advise=False, seed=seed).run(why, 30) for seed in range(2))
    advised = sum(Search(advise=True, seed=seed).run(why, 30) for seed in range(2))
    assert advised < at_most * without


def test_one_failure_condemns_nothing_and_a_person_or_a_lost_node_never_does() -> None:
    search = Search(advise=True)
    assert search.advisor is not None
    for index in range(8):
        search.ended(None, train__lr=1e-4 * (1 + index))
    search.ended("eval/loss=nan", train__lr=0.5)
    for _ in range(5):
        search.ended("stopped by a person", train__lr=0.5)
        search.ended("the node died unexpectedly", train__lr=0.5)
    point = dict(search.study.trials[-1].params) | {"train.lr": 0.5}
    assert search.advisor.refuse(search.study, point) is None


def test_what_ran_out_of_memory_twice_is_not_tried_with_more() -> None:
    search = Search(advise=True)
    assert search.advisor is not None
    same = {"train__optimizer": "adamw", "train__weight_decay": 0.5, "train__lr": 1e-3}
    search.ended("CUDA out of memory", train__batch_size=100, model__width=200, **same)
    point = {"train.lr": 1e-4, "train.weight_decay": 0.0, "train.optimizer": "adamw"}
    larger = {**point, "train.batch_size": 200, "model.width": 300}
    assert search.advisor.refuse(search.study, larger) is None
    search.ended("CUDA out of memory", train__batch_size=120, model__width=210, **same)
    said = search.advisor.refuse(search.study, larger)
    assert said is not None
    assert "train.batch_size=120, model.width=210" in said
    assert search.advisor.refuse(search.study, {**larger, "model.width": 100}) is None
    assert search.advisor.refuse(search.study, {**larger, "train.optimizer": "sgd"}) is None
    for _ in range(3):
        search.ended(None, train__batch_size=400, model__width=400, **same)  # so it was something else
    assert search.advisor.refuse(search.study, larger) is None


def test_a_space_in_which_all_fails_is_still_searched() -> None:
    search = Search(advise=True)
    assert search.run(lambda point: "RuntimeError: boom", 60) == 1
    assert search.refused == 0


def test_one_training_that_is_repeated_may_fail_sometimes() -> None:
    search = Search(advise=False)
    for number in range(6):
        search.end(search.study.ask(), number, "RuntimeError: boom" if number % 2 else None)
    assert FailureAdvisor(space_of({})).refuse(search.study, {}) is None


@pytest.mark.slow
def test_failures_by_chance_cost_no_good_part_of_the_space() -> None:
    search = Search(advise=True)
    chance = iter(math.sin(index * 12.9898) * 43758.5453 % 1 < 0.2 for index in range(1000))
    search.run(lambda point: "RuntimeError: boom" if next(chance) else None, 60)
    assert search.refused < 20


def test_without_failures_the_library_of_forests_is_not_imported() -> None:
    code = """
import sys
import optuna
from sweeps.config.space import FloatDistribution
from sweeps.search.advisors.failures import FailureAdvisor
from sweeps.space.space import Space
study, advisor = optuna.create_study(), FailureAdvisor(Space({"x": FloatDistribution(type="float", low=0, high=1)}))
study.add_trial(optuna.create_trial(value=1.0))
print(advisor.refuse(study, {"x": 0.5}), "sklearn" in sys.modules)
"""
    done = run_python("-c", code)
    assert done.stdout.split() == ["None", "False"]
