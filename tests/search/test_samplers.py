"""Every sampler: within bounds, seeded, and aware of running trials."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna._hypervolume import compute_hypervolume
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from spaces import sampler_of, space_of

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.samplers import Sampler
from sweeps.config.space import FloatDistribution, OrdinalDistribution
from sweeps.constants import COMPLETED, STEP
from sweeps.errors import ConfigError
from sweeps.search import OptunaSearcher
from sweeps.search.samplers.build_sampler import build_sampler, shuffled
from sweeps.space.distributions import contains
from sweeps.space.space import Space
from sweeps.validate.target_checks import check_targets

SPACE = space_of(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "dropout": {"type": "float", "low": 0.0, "high": 0.35, "step": 0.1},
        "layers": {"type": "int", "low": 1, "high": 7, "step": 2},
        "size": {"type": "ordinal", "choices": ["small", "medium", "large"]},
        "kind": {"type": "categorical", "choices": ["a", "b", [1, 2]]},
        "width": {"type": "int", "low": 8, "high": 64, "log": True, "when": {"kind": ["b", [1, 2]]}},
        "momentum": {"type": "float", "low": 0.5, "high": 0.99, "when": {"kind": "a", "size": "large"}},
        "epochs": {"type": "constant", "value": 3},
    }
)
FINITE = Space({path: SPACE[path] for path in ("dropout", "layers", "size", "kind")})

SAMPLERS: dict[str, dict[str, Any]] = {
    "tpe": {"kind": "tpe", "startup_trials": 5},
    "bohb": {"kind": "bohb", "startup_trials": 5},
    "curves": {"kind": "curves", "startup_trials": 5},
    "gp": {"kind": "gp", "startup_trials": 5},
    "cmaes": {"kind": "cmaes"},
    "nsga2": {"kind": "nsga2", "population": 6},
    "nsga3": {"kind": "nsga3", "population": 6},
    "sobol": {"kind": "qmc"},
    "halton": {"kind": "qmc", "sequence": "halton"},
    "random": {"kind": "random"},
    "grid": {"kind": "grid"},
    "brute_force": {"kind": "brute_force"},
    "custom": {"kind": "custom", "_target_": "optuna.samplers.RandomSampler"},
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)
GP = pytest.param("gp", marks=pytest.mark.slow)  # its suggestions take long, so that most of its tests are slow
every_quick_sampler = pytest.mark.parametrize("name", [GP if name == "gp" else name for name in SAMPLERS])


def config(name: str) -> Sampler:
    return sampler_of(**SAMPLERS[name])


def space_for(name: str) -> Space:
    return FINITE if name in ("grid", "brute_force") else SPACE


def searcher(name: str, seed: int = 0, **options: Any) -> OptunaSearcher:
    space = space_for(name)
    return OptunaSearcher(
        space,
        **{"metric": "loss", "mode": "min", **options},
        sampler=build_sampler(config(name), seed, space),
        grid=shuffled(space.grid(lambda path: None), seed) if name == "grid" else None,
    )


def loss(point: dict[str, Any]) -> float:
    return abs(math.log10(point.get("lr", 0.01)) + 2) + 0.1 * point["layers"] + point.get("width", 30) / 100


def tried(search: OptunaSearcher, ids: range) -> list[dict[str, Any]]:
    """Points that are suggested and finished one after another."""
    points = []
    for index in ids:
        point = search.suggest(str(index))
        assert isinstance(point, dict)
        points.append(point)
        result = {"loss": loss(point), "seconds": point["layers"], STEP: 1, "training_iteration": 1, COMPLETED: True}
        search.on_trial_complete(str(index), result)
    return points


@every_sampler
def test_points_stay_in_the_space_with_its_conditions(name: str) -> None:
    for point in tried(searcher(name), range(8 if name == "gp" else 25)):
        for path, distribution in space_for(name).distributions.items():
            assert (path in point) == space_for(name).active(path, point, lambda path: None)
            assert path not in point or contains(distribution, point[path])


@every_quick_sampler
def test_the_same_seed_makes_the_same_suggestions(name: str) -> None:
    first = tried(searcher(name, seed=1), range(9))
    assert tried(searcher(name, seed=1), range(9)) == first
    assert tried(searcher(name, seed=2), range(9)) != first


@pytest.mark.parametrize("name", [GP if name == "gp" else name for name in SAMPLERS if name != "custom"])
def test_a_search_that_is_interrupted_goes_on_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    def reopened() -> OptunaSearcher:
        storage = JournalStorage(JournalFileBackend(str(tmp_path / "optuna.log")))
        return searcher(name, storage=storage, study_name="study")

    through = tried(searcher(name), range(12))
    parts = [tried(reopened(), part) for part in (range(3), range(3, 8), range(8, 12))]
    assert list(itertools.chain(*parts)) == through


def test_ordered_choices_that_a_storage_cannot_hold_are_searched_all_the_same(tmp_path: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "optuna.log")))
    choices = [np.int64(8), np.int64(16)]
    search = OptunaSearcher(
        {"batch": OrdinalDistribution(type="ordinal", choices=choices)}, metric="loss", mode="min", storage=storage
    )
    assert search.suggest("0")["batch"] in choices


@every_quick_sampler
def test_suggestions_that_run_at_the_same_time_differ(name: str) -> None:
    search = searcher(name)
    tried(search, range(6))
    points = [search.suggest(f"parallel {index}") for index in range(4)]
    assert len({str(point) for point in points}) == 4


@pytest.mark.parametrize("name", ["tpe", GP, "nsga2", "nsga3", "random", "sobol"])
def test_several_objectives(name: str) -> None:
    search = searcher(name, metric=["loss", "seconds"], mode=["min", "max"])
    points = tried(search, range(8))
    best = {trial.user_attrs["sweeps:trial"] for trial in search.study.best_trials}
    values = [(loss(point), -point["layers"]) for point in points]
    front = {
        index
        for index, (a, b) in enumerate(values)
        if not any(other != (a, b) and other[0] <= a and other[1] <= b for other in values)
    }
    assert best == front


@pytest.mark.parametrize("name", ["tpe", GP, "cmaes"])
def test_a_model_finds_better_points_than_chance(name: str) -> None:
    def late(name: str) -> float:
        return sum(map(loss, tried(searcher(name), range(24))[-8:]))

    assert late(name) < 0.8 * late("random")


@pytest.mark.slow
def test_with_two_objectives_a_model_of_each_parameter_finds_more_of_the_front_than_a_joint_one() -> None:
    """ZDT1 (Zitzler, Deb and Thiele, 2000) in six dimensions, with four trials at a time."""
    space = Space({f"x{index}": FloatDistribution(type="float", low=0, high=1) for index in range(6)})

    def found(name: str, objectives: int, seed: int) -> float:
        """Area from (0, 0) to (1, 4) that no trial is better than: 1/3 under the best front."""
        sampler = build_sampler(config(name), seed, space, objectives=objectives)
        search = OptunaSearcher(space, metric=["first", "second"], mode=["min", "min"], sampler=sampler)
        for index in range(20):
            points = {f"{index} {worker}": search.suggest(f"{index} {worker}") for worker in range(4)}
            for trial_id, point in points.items():
                assert isinstance(point, dict)
                first, *rest = (point[f"x{index}"] for index in range(6))
                distance = 1 + 9 * sum(rest) / len(rest)
                second = distance * (1 - math.sqrt(first / distance))
                ended = {STEP: 1, "training_iteration": 1, COMPLETED: True}
                search.on_trial_complete(trial_id, {"first": first, "second": second, **ended})
        reference = np.array([1.0, 4.0])
        front = np.minimum([trial.values for trial in search.study.best_trials], reference)
        return 4 - compute_hypervolume(front, reference)

    def mean(name: str, objectives: int) -> float:
        return sum(found(name, objectives, seed) for seed in range(3)) / 3

    of_each = mean("tpe", 2)
    assert of_each < 0.95 * mean("tpe", 1)
    assert of_each < 0.6 * mean("random", 2)


def test_a_sequence_covers_also_what_is_conditional() -> None:
    """Eight points of a Sobol sequence in one dimension lie in eight different eighths."""
    space = space_of({"x": {"type": "float", "low": 0.0, "high": 8.0}})
    search = OptunaSearcher(space, metric="loss", mode="min", sampler=build_sampler(config("sobol"), 0, space))
    points = [search.suggest(str(index)) for index in range(8)]
    assert sorted(int(point["x"]) for point in points if point is not None) == list(range(8))


def test_a_custom_sampler_that_does_not_exist_is_found_before_anything_starts() -> None:
    tokens = ["search/sampler=custom", "search.sampler._target_=optuna.samplers.TPSampler"]
    with pytest.raises(ConfigError, match=r"search\.sampler\._target_=optuna\.samplers\.TPSampler.*TPESampler"):
        check_targets(compose_sweep("digits", tokens, ConfSearchPath()).config)


def test_a_custom_sampler_gets_its_arguments_and_the_seed() -> None:
    arguments = {"_target_": "optuna.samplers.TPESampler", "arguments": {"n_startup_trials": 2}}
    custom = sampler_of("custom", **arguments)
    space = Space({"lr": SPACE["lr"]})
    made = [OptunaSearcher(space, metric="loss", mode="min", sampler=build_sampler(custom, 3, space)) for _ in range(2)]
    assert made[0].suggest("0") == made[1].suggest("0")
    assert isinstance(made[0].study.sampler.sampler, optuna.samplers.TPESampler)  # type: ignore[attr-defined]
