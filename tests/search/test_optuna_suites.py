"""Optuna's own test suites for samplers, on what Sweeps makes of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, MultiObjectiveSamplerTestCase, RelativeSamplerTestCase
from spaces import sampler_of

from sweeps.search.samplers.build_sampler import build_sampler
from sweeps.space.space import Space

SAMPLERS: dict[str, dict[str, Any]] = {
    "tpe": {"kind": "tpe", "startup_trials": 1},
    "bohb": {"kind": "bohb", "startup_trials": 1},
    "curves": {"kind": "curves", "startup_trials": 1},
    "gp": {"kind": "gp", "startup_trials": 1},
    "cmaes": {"kind": "cmaes"},
    "nsga2": {"kind": "nsga2", "population": 4},
}
"""Samplers of any space: one that enumerates a space (brute_force) or fills it (qmc) is made for one. Others (nsga3,
random, custom) are in the same one object around Optuna's as cmaes and nsga2."""
RELATIVE = ("tpe", "bohb", "gp")
"""Samplers that model several parameters together, choices among them."""


def made(name: str) -> Callable[[], BaseSampler]:
    return lambda: build_sampler(sampler_of(**SAMPLERS[name]), 0, Space({}))


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)


@pytest.mark.slow
class TestBasic(BasicSamplerTestCase):
    @pytest.fixture(params=SAMPLERS)
    def sampler(self, request: pytest.FixtureRequest) -> Callable[[], BaseSampler]:
        return made(request.param)


@pytest.mark.slow
class TestRelative(RelativeSamplerTestCase):
    @pytest.fixture(params=RELATIVE)
    def sampler(self, request: pytest.FixtureRequest) -> Callable[[], BaseSampler]:
        return made(request.param)


@pytest.mark.slow
class TestSeveralObjectives(MultiObjectiveSamplerTestCase):
    @pytest.fixture(params=["tpe", "bohb", "curves", "gp", "nsga2"])
    def sampler(self, request: pytest.FixtureRequest) -> Callable[[], BaseSampler]:
        return made(request.param)


@pytest.mark.parametrize("name", ["tpe", "bohb"])
def test_a_sampler_answers_for_a_space_that_it_was_not_asked_to_infer(name: str) -> None:
    space = {"x": optuna.distributions.FloatDistribution(0, 1), "y": optuna.distributions.IntDistribution(3, 10)}
    study = optuna.create_study(sampler=made(name)())
    study.tell(study.ask(space), 1.0)
    sampler = made(name)()
    study.ask()
    later = study.get_trials()[-1]
    assert set(sampler.sample_relative(study, later, space)) == set(space)
