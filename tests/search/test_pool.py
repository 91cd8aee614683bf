"""Tables as pools of configurations, for the comparison of searches in ``benchmarks``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from pool import PoolProblem, PoolSampler, pool_problem

from sweeps.constants import TIME_OF_REPORT
from sweeps.simulate.simulation import Reported


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven configurations, whose value at the end is the distance from 0.5."""
    rows = [
        {
            "config_id": each,
            "x": each / 10,
            "step": step,
            "elapsed_s": step,
            "eval/loss": abs(each / 10 - 0.5) + 1 / step,
        }
        for each in range(11)
        for step in (1, 2)
    ]
    file = tmp_path_factory.mktemp("pool") / "pool.parquet"
    pd.DataFrame(rows).to_parquet(file)
    return file


@pytest.fixture(scope="module")
def problem(table: Path) -> PoolProblem:
    return pool_problem(table, "eval/loss", "min", 0.0)


def test_a_search_trains_each_configuration_of_a_pool_once_the_nearest_first(problem: PoolProblem) -> None:
    pool = problem.source(0)
    ends = [pool.curve({"x": 0.5})[-1].metrics["loss"] - 0.5 for _ in range(11)]
    assert ends == pytest.approx([0, 0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5])


def test_a_sampler_learns_from_the_configuration_that_was_trained(problem: PoolProblem) -> None:
    pool = problem.source(0)
    sampler = PoolSampler(optuna.samplers.RandomSampler(seed=0), problem.space, pool)
    study = optuna.create_study(sampler=sampler)
    for _ in range(11):
        trial = study.ask()
        x = trial.suggest_float("x", 0, 1)
        study.tell(trial, pool.curve({"x": x})[-1].metrics["loss"])
    assert sorted(trial.params["x"] for trial in study.trials) == pytest.approx(np.linspace(0, 1, 11))


def test_the_first_report_of_a_trial_comes_after_its_start_as_the_scheduler_measures_it(table: Path) -> None:
    problem = pool_problem(table, "eval/loss", "min", 0.5)
    reports = problem.source(0).curve({"x": 0.5})
    assert [(each.elapsed_s, each.metrics[TIME_OF_REPORT]) for each in reports] == [(2.0, 2.0), (3.0, 1.0)]
    assert problem.full_s == 3.0


def test_the_best_configuration_of_a_pool_has_no_regret_and_the_median_one_of_1(problem: PoolProblem) -> None:
    best, median = (Reported(0.0, 0, 2, {"loss": 0.5 + end}) for end in (0.0, 0.3))
    assert problem.regret([best], {}) == pytest.approx(0)
    assert problem.regret([median], {}) == pytest.approx(1)
