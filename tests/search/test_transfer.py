"""Warm start: earlier sweeps help where they predict this one, and do no harm where they mislead."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import optuna
import pytest
from composing import composed
from hartmann import Hartmann
from recording import open_recorder
from spaces import sampler_of, space_of
from stores import make_store

from sweeps.compose import Composition
from sweeps.config.objectives import Objectives
from sweeps.config.space import FloatDistribution
from sweeps.constants import COMPOSITION_ARTIFACT
from sweeps.errors import UserError
from sweeps.search import EarlierTrials, OptunaSearcher, build_sampler, load_earlier, points_to_retry
from sweeps.search.samplers.transfer import distinct_best
from sweeps.space.space import Space
from sweeps.tracking.artifacts import COMPOSITION
from sweeps.warm_start.earlier_trials import EarlierSweep

SPACE = space_of(
    {
        "train.lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
        "train.optimizer": {"type": "categorical", "choices": ["adamw", "sgd"]},
        "train.momentum": {"type": "float", "low": 0.5, "high": 0.99, "when": {"train.optimizer": "sgd"}},
    }
)
CONFIG = "train: {lr: 0.5, optimizer: sgd, momentum: 0.9, schedule: cosine}"
LOSS = Objectives(("eval/loss",), ("min",))
Recorded = tuple[str, float, dict[str, Any]]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tracking URI of a store with sweeps that were recorded like real ones."""
    store = tmp_path_factory.mktemp("record") / "mlflow.db"
    make_store(store)
    uri = f"sqlite:///{store}"
    record(
        uri,
        "week-1",
        [
            ("finished", 0.3, {"train.lr": 1e-2, "train.optimizer": "adamw", "train.schedule": "cosine"}),
            ("pruned", 0.9, {"train.lr": 1e-3, "train.optimizer": "sgd", "train.momentum": 0.6, "train.warmup": 0.3}),
            ("finished", 0.5, {"train.lr": 2e-2, "train.optimizer": "sgd"}),
            ("finished", 0.1, {"train.lr": 0.5, "train.optimizer": "adamw"}),
            ("finished", 0.2, {"train.lr": 1e-2, "train.optimizer": "adam"}),
            ("finished", 0.2, {"train.lr": 1e-2, "train.optimizer": "adamw", "train.schedule": "linear"}),
            ("failed", 0.2, {"train.lr": 1e-2, "train.optimizer": "adamw"}),
        ],
    )
    record(uri, "far", [("finished", 0.3, {"train.lr": 0.9, "train.optimizer": "adamw"})])
    record(uri, "nothing", [("failed", 0.3, {"train.lr": 1e-2, "train.optimizer": "adamw"})])
    record(uri, "accuracy", [("finished", 0.3, {"train.lr": 1e-2})], Objectives(("eval/accuracy",), ("max",)))
    return uri


def record(
    uri: str,
    sweep: str,
    trials: Sequence[Recorded],
    objectives: Objectives = LOSS,
    *,
    config: str = CONFIG,
    composition: Composition | None = None,
    copied: Collection[int] = (),
) -> None:
    folder = Path(uri.removeprefix("sqlite:///")).parent / sweep
    more: dict[str, Any] = {"conf": "test", "config": config, "command": "", "experiment": "test"}
    recorder = open_recorder(uri, sweep, objectives, folder=folder, **more)
    if composition is not None:
        recorder.attach({COMPOSITION_ARTIFACT: json.dumps(COMPOSITION.stamped(composition.as_json()))}, {})
    for index, (state, value, params) in enumerate(trials):
        recorder.trials.start(str(index), params, CONFIG, 1)
        recorder.trials.log(str(index), 1, {objectives.metrics[0]: value})
        if index in copied:
            recorder.trials.record_exploit(str(index), 1, 1, {"train.lr": 0.05})
        recorder.trials.end(str(index), state, 1, 1, "it failed" if state == "failed" else None)
    assert not recorder.close("finished")


def today(path: str) -> Any:
    return {"train.schedule": "cosine"}.get(path)


def test_trials_that_todays_space_reaches_are_taken_the_best_first_and_completed_from_their_own_config(
    uri: str,
) -> None:
    (week,) = load_earlier(uri, ["week-1"], SPACE, today, "eval/loss", "min")
    assert week.values == [0.3, 0.5, 0.9]
    assert week.points == [
        {"train.lr": 1e-2, "train.optimizer": "adamw"},
        {"train.lr": 2e-2, "train.optimizer": "sgd", "train.momentum": 0.9},
        {"train.lr": 1e-3, "train.optimizer": "sgd", "train.momentum": 0.6},
    ]


def test_a_value_that_only_todays_sweep_searches_is_that_of_each_trials_own_config(uri: str) -> None:
    batches = (
        "space=none",
        "train.global_batch_size=choice(16, 32)",
        "train.max_steps=${calc:'6400 // train.global_batch_size'}",
    )
    models = "model=choice(conv_net, vision_transformer)"
    space = space_of(
        {
            "model": {"type": "categorical", "choices": ["conv_net", "vision_transformer"]},
            "model.width": {"type": "int", "low": 8, "high": 64, "when": {"model": "vision_transformer"}},
            "train.max_steps": {"type": "int", "low": 50, "high": 500},
        }
    )
    small, large = {"train.global_batch_size": 16}, {"train.global_batch_size": 32}
    for name, tokens, second in (
        ("one model", batches, large),
        ("two models", (*batches, models), {**large, "model": "vision_transformer"}),
    ):
        composition = composed("digits", *tokens)
        trials = [("finished", 0.2, small), ("finished", 0.3, second)]
        record(uri, name, trials, config=composition.as_yaml(), composition=composition)
        (earlier,) = load_earlier(uri, [name], space, today, "eval/loss", "min")
        wide = {"model": "vision_transformer", "model.width": 32} if "model" in second else {"model": "conv_net"}
        assert earlier.points == [{"model": "conv_net", "train.max_steps": 400}, {**wide, "train.max_steps": 200}]


def test_of_a_population_only_trials_that_copied_no_state_are_learned_from(uri: str) -> None:
    trials = [("finished", value, {"train.lr": 1e-2, "train.optimizer": "adamw"}) for value in (0.3, 0.1)]
    config = f"{CONFIG}\nsearch: {{scheduler: {{kind: pbt}}}}"
    record(uri, "population", trials, config=config, copied=[1])
    (population,) = load_earlier(uri, ["population"], SPACE, today, "eval/loss", "min")
    assert population.values == [0.3]
    assert population.note == "left out: 1 trial that copied the state of another one"
    record(uri, "copies", trials, config=config, copied=[0, 1])
    with pytest.raises(UserError, match="no finished trial that did not copy another one's state; leave it out"):
        load_earlier(uri, ["copies"], SPACE, today, "eval/loss", "min")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("weak-1", ["search.warm_start.0=weak-1", "did you mean week-1"]),
        ("accuracy", ["search.warm_start.0=accuracy", "max eval/accuracy", "set search.metric"]),
        ("far", ["search.warm_start.0=far", "none of its 1 finished trials", "train.lr", "widen"]),
        ("nothing", ["search.warm_start.0=nothing", "no finished trial", "leave it out"]),
    ],
)
def test_what_cannot_be_learned_from_is_a_mistake_of_the_user(uri: str, name: str, words: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        load_earlier(uri, [name], SPACE, today, "eval/loss", "min")
    assert [word for word in words if word not in str(raised.value)] == []


def test_the_best_distinct_points_are_tried_again_from_each_sweep_in_turn() -> None:
    def at(*rates: float) -> EarlierSweep:
        worse = [1e-4] * 3 * len(rates)
        points = [{"train.lr": lr, "train.optimizer": "adamw"} for lr in (*rates, *worse)]
        return EarlierSweep("x", points, [0.0] * len(points))

    again = points_to_retry([at(1e-2, 1.01e-2, 1e-3), at(1.02e-2, 5e-2)], SPACE)
    assert [point["train.lr"] for point in again] == [1e-2, 5e-2, 1e-3]
    assert [point["train.lr"] for point in points_to_retry([at(1e-2)], SPACE)] == [1e-2]


def searched(
    function: Hartmann, seed: int, earlier: EarlierSweep | None, kind: str = "tpe", trials: int = 40
) -> tuple[list[dict[str, Any]], list[float]]:
    """Points that were tried, and their regrets."""
    space = Space(function.space)
    known = None if earlier is None else EarlierTrials([earlier], space, "min", seed)
    searcher = OptunaSearcher(
        space,
        metric="loss",
        mode="min",
        sampler=build_sampler(sampler_of(kind), seed, space, known),
        points=[] if earlier is None else points_to_retry([earlier], space),
    )
    return function.searched(searcher, trials)


def best_so_far(function: Hartmann, kind: str, earlier: Sequence[EarlierSweep | None]) -> npt.NDArray[np.float64]:
    """Best regret so far, of shape ``[seeds, trials]``."""
    found = [searched(function, seed, each, kind)[1] for seed, each in enumerate(earlier)]
    return np.minimum.accumulate(np.array(found), axis=1)


@functools.cache
def searched_before(function: Hartmann, seed: int) -> tuple[list[dict[str, Any]], list[float]]:
    return searched(function, 1000 + seed, None, trials=60)


def earlier_of(function: Hartmann, seed: int, factor: float = 1.0) -> EarlierSweep:
    points, regrets = searched_before(function, seed)
    measured = sorted(zip((factor * regret + 3 for regret in regrets), points, strict=True), key=lambda each: each[0])
    return EarlierSweep("earlier", [point for _, point in measured], [value for value, _ in measured])


SEEDS = range(6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tpe", "cmaes"])
def test_a_related_sweep_helps_on_any_scale_and_a_misleading_one_does_no_harm(kind: str) -> None:
    function = Hartmann(3)
    without = best_so_far(function, kind, [None for _ in SEEDS])
    same = best_so_far(function, kind, [earlier_of(function, seed, factor=10) for seed in SEEDS])
    alike = best_so_far(function, kind, [earlier_of(Hartmann(3, shift=0.1), seed) for seed in SEEDS])
    opposite = best_so_far(function, kind, [earlier_of(function, seed, factor=-1) for seed in SEEDS])
    assert same[:, 9].mean() < 0.2 * without[:, 9].mean()
    assert alike[:, :20].mean() < 0.8 * without[:, :20].mean()
    noise = float(np.hypot(without[:, -1].std(), opposite[:, -1].std()) / len(SEEDS) ** 0.5)
    assert opposite[:, -1].mean() < without[:, -1].mean() + 2 * noise


@pytest.mark.parametrize("kind", [pytest.param("gp", marks=pytest.mark.slow), "bohb"])
def test_other_samplers_that_learn_are_helped_too(kind: str) -> None:
    function = Hartmann(6)
    earlier = earlier_of(function, 0)
    helped, alone = (min(searched(function, 0, each, kind, trials=14)[1]) for each in (earlier, None))
    assert helped < alone


def test_trust_follows_from_how_well_earlier_trials_rank_todays() -> None:
    function = Hartmann(3)
    space, earlier = Space(function.space), earlier_of(function, 0)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    model, trusts = EarlierTrials([earlier], space, "min", 0), []
    for _ in range(30):
        asked = study.ask()
        study.tell(asked, function.regret(space.sample(asked, today)))
        trusts.append(model.trusts(study.trials)[0])
    assert trusts[:4] == [0.0] * 4
    assert min(trusts[15:]) > 0.2
    opposite = EarlierTrials([earlier_of(function, 0, factor=-1)], space, "min", 0)
    assert opposite.trusts(study.trials) == [0.0]
    assert opposite.trials(study.trials) == []


def test_where_the_last_report_counts_it_is_that_of_stopped_trials_too() -> None:
    function = Hartmann(3)
    space, earlier = Space(function.space), earlier_of(function, 0)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.NopPruner())
    for _ in range(30):  # the mean of several folds, of which the first is easy
        asked = study.ask()
        point = space.sample(asked, today)
        asked.report(-9.0, 1)
        asked.report(function.regret(point), 2)
        study.tell(asked, state=optuna.trial.TrialState.PRUNED)
    trusts = [
        EarlierTrials([earlier], space, "min", 0, last_counts=last).trusts(study.trials)[0] for last in (True, False)
    ]
    assert trusts[0] > 0.2
    assert trusts[1] == 0.0


def test_of_similar_points_the_best_is_taken_unless_there_are_too_few_others() -> None:
    space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
    points = [{"x": x} for x in (0.5, 0.51, 0.5, 0.9, 0.52, 0.1)]
    sweep = EarlierSweep("stage 1", points, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert [point["x"] for point in distinct_best(sweep, 2, space)] == [0.5, 0.9]
    assert [point["x"] for point in distinct_best(sweep, 9, space)] == [0.5, 0.9, 0.1, 0.51, 0.52]
