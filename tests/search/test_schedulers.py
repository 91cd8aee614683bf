"""Decisions of Hyperband compared with brute force, mutations, and checkpoints that trials take over."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from scheduling import LOSS, Controller, CurveTrial, random_curves

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.space import (
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    OrdinalDistribution,
)
from sweeps.constants import COMPLETED, DECISION_PREFIX, NUMBER, SAVED, STEP
from sweeps.errors import ConfigError, TrialFailed
from sweeps.runtime.checkpoint_layout import Origin, checkpoint_folder, pin, take_over
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.decisions import PAUSES, STOPS, DecisionLog, is_paused, is_running
from sweeps.search.schedulers.freeze_thaw import FreezeThaw
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.mutation import Mutation
from sweeps.search.schedulers.pbt import PopulationBasedTraining, SavedStates
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.rung_positions import Rungs
from sweeps.search.schedulers.scheduler import Exploit, Result, Scheduler, Verdict
from sweeps.search.schedulers.trial_length import hyperband_range
from sweeps.search.unit_cube import value_at
from sweeps.space.distributions import contains, grid_values
from sweeps.space.space import Space
from sweeps.validate.config_checks import check_sweep, lookup_in
from sweeps_train.checkpoints.checkpoint_metrics import read_metrics, write_evaluation
from sweeps_train.checkpoints.integrity import find_damage, quarantine, seal
from sweeps_train.checkpoints.kept_checkpoints import remove_superseded
from sweeps_train.config.better import Objective

CONTINUE, STOP, PAUSE = Verdict.CONTINUE, Verdict.STOP, Verdict.PAUSE


# --- hyperband --------------------------------------------------------------------------------------------


def hyperband_truth(
    curves: dict[str, list[tuple[float, float]]], grace: float, longest: float, eta: float
) -> dict[str, float]:
    """Resource that each trial reaches: bracket by bracket, with the best 1/eta kept at each rung."""
    names, reached = list(curves), {}
    most = math.floor(math.log(longest / grace, eta) + 1e-9)
    rungs = most
    while names:
        size = math.ceil((most + 1) / (rungs + 1) * eta**rungs - 1e-9)
        members, names = names[:size], names[size:]
        for index in range(rungs):
            rung = longest / eta ** (rungs - index)
            at_rung = {name: next(point for point in curves[name] if point[0] >= rung) for name in members}
            ranked = sorted(members, key=lambda name: (math.isnan(at_rung[name][1]), at_rung[name][1]))
            count = max(1, math.floor(len(members) / eta + 1e-9))
            reached |= {name: at_rung[name][0] for name in ranked[count:]}
            members = ranked[:count]
        reached |= {name: curves[name][-1][0] for name in members}
        rungs = rungs - 1 if rungs else most
    return reached


@pytest.mark.parametrize("places", [1, 2, 5, 50])
@pytest.mark.parametrize(
    ("count", "length", "stride", "eta"), [(17, 9, 1, 3), (30, 8, 1, 2), (7, 9, 0.25, 3), (5, 27, 100, 3)]
)
def test_hyperband_gives_every_trial_what_its_rungs_give_it_in_any_order(
    places: int, count: int, length: int, stride: float, eta: float
) -> None:
    for seed in range(5):
        chance = random.Random(seed)
        curves = random_curves(count, length, seed, stride)
        curves["01"] = [(time, math.nan) for time, _ in curves["01"]]
        controller = Controller(Hyperband("steps", stride, stride * length, eta, LOSS), "steps", places=places)
        controller.run(curves, chance.choice)  # type: ignore[arg-type]
        came_to = {trial.id: trial.curve[trial.position - 1][0] for trial in controller.trials}
        assert came_to == hyperband_truth(curves, stride, stride * length, eta)
        assert all(trial.status == "ended" for trial in controller.trials)
        assert controller.most_running <= places


@pytest.mark.parametrize(("rung", "longest", "rounded_up"), [(3, 729, 729 * 3.0**-5), (0.3, 2.7, 2.7 / 3**2)])
def test_hyperband_compares_trials_at_the_rung_itself_where_its_power_or_fraction_was_rounded_up(
    rung: float, longest: float, rounded_up: float
) -> None:
    assert rounded_up > rung
    controller = Controller(Hyperband("steps", rung, longest, 3.0, LOSS), "steps", places=1)
    assert controller.report(controller.add("0", [(rung, 0.5), (1.5 * rung, 0.5)])) == PAUSE


@pytest.mark.parametrize(
    ("grace", "eta", "longest", "rungs"),
    [
        (0.3, 3, 2.7, [0.3, 0.9, 2.7]),
        (1, 3, 9, [1, 3, 9]),
        (1, 3, 10, [1, 3, 9, 10]),
        (1, 3, 9 - 1e-9, [1, 3, 9 - 1e-9]),
        (4, 2, 3, [3, 4]),
    ],
)
def test_the_end_of_a_training_is_one_rung(grace: float, eta: float, longest: float, rungs: list[float]) -> None:
    found = Rungs(grace, eta).up_to(longest)
    assert found == pytest.approx(rungs, rel=1e-12)
    assert longest in found


def test_the_first_rung_is_reached_also_by_a_sum_of_fractions() -> None:
    reached = sum([0.1] * 8)
    assert reached < 0.8
    assert Rungs(0.8, 3).furthest(reached) == 0.8
    assert Rungs(0.8, 3).furthest(0.7) is None


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("kind", [Asha, Hyperband, FreezeThaw, PopulationBasedTraining])
def test_an_amount_that_is_not_finite_counts_as_none_also_in_the_last_report(
    kind: type[Scheduler], bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: dict[type[Scheduler], Callable[[DecisionLog], Scheduler]] = {
        Asha: lambda log: Asha("steps", 1, 2, 1, 0, LOSS, log),
        Hyperband: lambda log: Hyperband("steps", 1, 4, 2, LOSS, log),
        FreezeThaw: lambda log: FreezeThaw("steps", 1, None, 2, SPACE, LOSS, log),
        PopulationBasedTraining: lambda log: PopulationBasedTraining(
            "steps", 1, 0.25, mutation([]), objectives=LOSS, population=lambda: 6, states=SavedStates(), decisions=log
        ),
    }

    def searched(seed: int, told: Callable[[Result], Result]) -> tuple[list[str], list[Any]]:
        study, chance = optuna.create_study(), random.Random(seed)
        curves: dict[str, Sequence[tuple[float, float]]] = {}
        for number in range(6):
            study.ask().set_user_attr(NUMBER, number)
            amounts = [bad if number < 2 or chance.random() < 0.3 else step for step in (1.0, 2.0, 3.0, 4.0)]
            curves[f"{number:04}"] = [(amount, chance.random()) for amount in amounts]
        scheduler = builds[kind](DecisionLog(study))
        report, complete = scheduler.report, scheduler.complete
        monkeypatch.setattr(scheduler, "report", lambda trial, result, places: report(trial, told(result), places))
        monkeypatch.setattr(
            scheduler,
            "complete",
            lambda trial, result, places: complete(
                trial, {**told(result), COMPLETED: trial.position == len(trial.curve)}, places
            ),
        )
        controller = Controller(scheduler, "steps", places=2)
        controller.run(curves, chance.choice)  # type: ignore[arg-type]
        return controller.order, DecisionLog(study).events

    for seed in range(3):
        found = searched(seed, lambda result: result)
        assert found == searched(
            seed, lambda result: {key: each for key, each in result.items() if math.isfinite(each)}
        )


def test_a_trial_that_hyperband_pauses_is_known_as_paused_until_it_goes_on() -> None:
    study = optuna.create_study()
    controller = Controller(Hyperband("steps", 1, 3, 3, LOSS, DecisionLog(study)), "steps", places=1)
    for number in range(3):
        assert not [trial for trial in study.trials if is_running(trial)]
        study.ask().set_user_attr(NUMBER, number)
        trial = controller.add(f"{number:04}", [(1, number), (2, number), (3, number)])
        assert [trial.number for trial in study.trials if is_running(trial)] == [number]
        assert controller.report(trial) == (PAUSE if number < 2 else STOP)
    controller.resume()
    assert is_running(study.trials[0])
    assert is_paused(study.trials[1])
    again = Hyperband("steps", 1, 3, 3, LOSS)
    decided = [(event, again.repeat(name, event)) for name, event in DecisionLog(study).events]
    assert all(repeated == (event.get(STOPS) or event.get(PAUSES) or False) for event, repeated in decided)


def test_hyperband_looks_at_its_paused_trials_again_only_when_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    look = Hyperband.ready

    def ready(*arguments: Any, **named: Any) -> Any:
        looked.append("looked")
        return look(*arguments, **named)

    monkeypatch.setattr(Hyperband, "ready", ready)
    controller = Controller(Hyperband("steps", 2, 6, 3, LOSS), "steps", places=1)

    def looks_after(event: str) -> bool:
        looked.clear()
        for _ in range(2):
            assert controller.resume() is None, event
        return bool(looked)

    trial = controller.add("0", [(1, 0.5), (2, 0.5), (3, 0.5)])
    assert looks_after("a trial was added")
    assert len(looked) == 1
    controller.report(trial)
    assert not looks_after("a report before the rung")
    controller.report(trial)
    assert looks_after("a pause")
    controller.add("1", [(2, 0.5), (3, 0.5)])
    assert looks_after("another trial was added")


def test_hyperband_gives_a_paused_trials_place_to_another_and_resumes_before_it_starts_new_ones() -> None:
    controller = Controller(Hyperband("steps", 1, 9, 3, LOSS), "steps", places=1)
    curves = {f"{number}": [(float(step), float(number)) for step in range(1, 10)] for number in range(17)}
    controller.run(curves, lambda running: running[0])
    # Nine report once each, the best three of them go on to 3, the best of those to its end, and only then number 9.
    assert controller.order[:9] == [f"{number}" for number in range(9)]
    assert sorted(controller.order[9:15]) == ["0", "0", "1", "1", "2", "2"]
    assert controller.order[15:22] == ["0"] * 6 + ["9"]


def three_of_a_bracket(*losses: float) -> tuple[Controller, list[CurveTrial]]:
    controller = Controller(Hyperband("steps", 1, 3, 3, LOSS), "steps", places=3)
    trials = [controller.add(name, [(1, loss), (2, loss), (3, loss)]) for name, loss in zip("abc", losses, strict=True)]
    assert [controller.report(trial) for trial in trials[:2]] == [PAUSE, PAUSE]
    return controller, trials


def test_a_trial_that_fails_for_good_does_not_keep_its_bracket_waiting() -> None:
    controller, trials = three_of_a_bracket(0.1, 0.2, 0.3)
    controller.fail(trials[2])
    assert controller.resume() is trials[0]
    assert trials[1].status == "ended"


def test_a_trial_that_failed_and_is_started_again_keeps_its_bracket() -> None:
    controller, trials = three_of_a_bracket(0.3, 0.2, 0.1)
    controller.scheduler.leave(trials[2], controller.places)
    controller.scheduler.add(trials[2], controller.places)
    assert controller.resume() is None
    assert controller.report(trials[2]) == CONTINUE  # the best of the three
    controller.resume()
    assert [trial.status for trial in trials] == ["ended", "ended", "running"]


# --- mutation ---------------------------------------------------------------------------------------------

BY_LOSS = [Objective("loss", "min")]
SPACE = Space(
    {
        "train.lr": FloatDistribution(type="float", low=1e-4, high=1e-1, log=True),
        "train.weight_decay": FloatDistribution(type="float", low=0.0, high=0.1, step=0.02),
        "train.schedule": CategoricalDistribution(type="categorical", choices=["constant", "cosine"]),
        "train.momentum": FloatDistribution(type="float", low=0.8, high=0.99, when={"train.schedule": "cosine"}),
        "model.width": IntDistribution(type="int", low=8, high=64, step=8),
        "model.dropout": OrdinalDistribution(type="ordinal", choices=[0.0, 0.1, 0.2, 0.5]),
    }
)
POINT = {
    "train.lr": 0.01,
    "train.weight_decay": 0.04,
    "train.schedule": "cosine",
    "train.momentum": 0.9,
    "model.width": 16,
    "model.dropout": 0.1,
}


def mutation(changing: Sequence[str], probability: float = 0.25, validate: Any = lambda point: None) -> Mutation:
    return Mutation(SPACE, changing, lambda path: None, validate, resample_probability=probability, seed=0)


@pytest.mark.parametrize(
    "distribution",
    [
        IntDistribution(type="int", low=32, high=512, step=32),
        FloatDistribution(type="float", low=0.0, high=0.5, step=0.05),
        FloatDistribution(type="float", low=-1.0, high=1.0, step=0.1),
        IntDistribution(type="int", low=1, high=64, log=True),
    ],
)
def test_no_value_of_a_range_in_steps_is_one_that_mutation_cannot_leave(
    distribution: IntDistribution | FloatDistribution,
) -> None:
    near = Mutation(Space({"x": distribution}), ["x"], lambda path: None, dict, resample_probability=0.0, seed=0).near
    for value in grid_values("x", distribution):
        assert {near({"x": value}, str(occasion))["x"] for occasion in range(20)} != {value}


def test_values_that_a_scheduler_gives_are_exact_steps_of_their_range() -> None:
    tenths = FloatDistribution(type="float", low=0.1, high=0.9, step=0.1)
    mutated = Mutation(Space({"x": tenths}), ["x"], lambda path: None, dict, resample_probability=0.0, seed=0)
    given = [value_at(tenths, step / 8) for step in range(9)]
    assert [mutated.with_values({"x": 0.1}, {"x": value}, "1")["x"] for value in given] == [
        *(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    ]


def test_mutated_points_stay_within_the_space_and_change_only_what_may_change() -> None:
    near = mutation(["train.lr", "train.weight_decay", "train.schedule", "model.dropout"])
    point: dict[str, Any] = dict(POINT)
    seen: dict[str, set[Any]] = {path: set() for path in SPACE}
    for occasion in range(500):
        point = near.near(point, f"{occasion}")
        assert point["model.width"] == 16
        assert ("train.momentum" in point) == (point["train.schedule"] == "cosine")
        for path, value in point.items():
            assert contains(SPACE[path], value), (path, value)
            seen[path].add(value)
    assert seen["train.schedule"] == {"constant", "cosine"}
    assert seen["model.dropout"] == {0.0, 0.1, 0.2, 0.5}
    assert len(seen["train.weight_decay"]) == 6


def test_numbers_move_by_a_fifth_and_ordered_choices_to_a_neighbour() -> None:
    near = mutation(["train.lr", "model.dropout"], probability=0.0)
    points = [near.near(POINT, f"{occasion}") for occasion in range(50)]
    assert {round(point["train.lr"], 9) for point in points} == {0.008, 0.012}
    assert {point["model.dropout"] for point in points} == {0.0, 0.2}


def test_the_same_occasion_changes_the_same_whatever_was_changed_before() -> None:
    first, second = mutation(["train.lr", "train.momentum"]), mutation(["train.lr", "train.momentum"])
    for occasion in range(20):
        second.near(POINT, f"0001/{occasion}")
    assert [first.near(POINT, f"0000/{each}") for each in range(9)] == [
        second.near(POINT, f"0000/{each}") for each in range(9)
    ]
    assert len({str(first.near(POINT, f"0000/{each}")) for each in range(9)}) > 2


class KeptStates(SavedStates):
    """Every trial's state is kept, and can be copied."""

    def keep(self, trial: str, num_exploits: int, step: int) -> bool:
        return True

    def take_over(self, trial: str, origin: Origin) -> bool:
        return True


def test_no_trial_of_a_population_continues_from_the_state_of_one_that_diverged() -> None:
    options: dict[str, Any] = {"objectives": LOSS, "population": lambda: 8, "states": KeptStates()}
    scheduler, places = PopulationBasedTraining("steps", 1, 0.25, mutation([]), **options), Places(8)
    trials = [CurveTrial(f"{number:04}", []) for number in range(8)]
    for trial in trials:
        scheduler.add(trial, places)
    donors = set()
    for step in range(1, 9):
        for trial in trials:
            loss = 0.5 if trial.id == "0003" else math.nan
            verdict = scheduler.report(trial, {"steps": step, STEP: step, "loss": loss}, places)
            if isinstance(verdict, Exploit):
                donors.add(verdict.origin.trial)
    assert donors == {"0003"}


@pytest.mark.parametrize("number", [2, 3])
def test_a_trial_of_a_population_that_has_saved_nothing_does_not_begin_anew_after_a_pause(number: int) -> None:
    options: dict[str, Any] = {"objectives": LOSS, "population": lambda: number, "states": KeptStates()}
    scheduler, places = PopulationBasedTraining("steps", 1, 0.25, mutation([]), **options), Places(2)
    trials = [CurveTrial(f"{each:04}", []) for each in range(2)]
    for trial in trials:
        scheduler.add(trial, places)
    result = {"steps": 1, STEP: 1, "loss": 0.5, SAVED: False}
    if number == 2:  # all have begun, so none waits for its turn
        assert scheduler.report(trials[0], result, places) is Verdict.CONTINUE
    else:
        with pytest.raises(TrialFailed, match="step 1 came without a checkpoint"):
            scheduler.report(trials[0], result, places)


def test_every_trial_of_a_population_gets_its_turn_though_all_get_worse_with_every_step() -> None:
    options: dict[str, Any] = {"objectives": LOSS, "population": lambda: 6, "states": KeptStates()}
    for seed in range(10):
        chance, scheduler = random.Random(seed), PopulationBasedTraining("steps", 1, 0.5, mutation([]), **options)
        controller = Controller(scheduler, "steps", places=2)
        curves = {f"{number:04}": [(step, step + chance.random()) for step in range(1, 9)] for number in range(6)}
        controller.run(curves, choose=chance.choice)
        assert all(trial.position == 8 for trial in controller.trials)
        assert len(controller.order) < 1000


def test_new_trials_of_a_population_begin_though_a_paused_one_left_before_the_next_check() -> None:
    study, score = optuna.create_study(), {"score": -0.5, "step": 1, "trained": 1, "saved": False}
    for number in range(3):
        trial = study.ask()
        trial.set_user_attr(NUMBER, number)
        trial.set_user_attr(f"{DECISION_PREFIX}{number}", {"event": "compared", "paused": True, **score})
    options: dict[str, Any] = {"objectives": LOSS, "population": lambda: 4, "states": KeptStates()}
    scheduler = PopulationBasedTraining("steps", 1, 0.25, mutation([]), decisions=DecisionLog(study), **options)
    controller = Controller(scheduler, "steps", places=2)
    for name in ("0000", "0001"):
        assert controller.add(name, []).status == "paused"
    assert controller.resume() is None
    assert controller.places.may_begin()
    controller.fail(controller.add("0002", []))
    assert controller.resume() is None
    assert controller.places.may_begin()


def test_a_population_is_compared_after_every_interval_that_is_a_fraction() -> None:
    assert 0.3 - 0.2 < 0.1
    decisions, places = DecisionLog(), Places(1)
    options: dict[str, Any] = {"objectives": LOSS, "population": lambda: 1, "states": KeptStates()}
    scheduler = PopulationBasedTraining("epochs", 0.1, 0.25, mutation([]), decisions=decisions, **options)
    trial = CurveTrial("0000", [])
    scheduler.add(trial, places)
    for step in range(1, 31):
        scheduler.report(trial, {"epochs": step / 10, STEP: step, "loss": 0.5}, places)
    assert decisions.count == 30


def test_a_point_that_cannot_be_run_is_not_chosen() -> None:
    def validate(point: dict[str, Any]) -> None:
        if point["train.lr"] > 0.01:
            raise ConfigError("too much")

    near = mutation(["train.lr"], 0.0, validate)
    assert {round(near.near(POINT, f"{occasion}")["train.lr"], 9) for occasion in range(20)} == {0.008}


# --- what a config must have ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (
            ["search/scheduler=hyperband", "search.scheduler.resource=seconds"],
            "search.scheduler.longest: the number of seconds",
        ),
        (
            ["search/scheduler=hyperband", "search.scheduler.resource=seconds", "search.scheduler.longest=9"],
            "search.scheduler.longest of 9 seconds is less than eta times the first rung",
        ),
        (["search/scheduler=hyperband", "checkpoint.every=15", "train.eval_every=10"], "checkpoint.every=15: search"),
        (["search/scheduler=pbt", "checkpoint.every=15", "train.eval_every=10"], "checkpoint.every=15: search"),
    ],
)
def test_a_scheduler_that_does_not_fit_the_config_is_refused_before_anything_starts(
    tokens: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sweep(compose_sweep("digits", ["train.max_steps=40", *tokens], ConfSearchPath()))


@pytest.mark.parametrize(
    ("resource", "first", "whole"),
    [("evaluations", 1, 4), ("steps", 10, 40), ("samples", 320, 1280)],
)
def test_what_a_whole_trial_takes_of_hyperbands_resource_follows_from_the_config(
    resource: str, first: float, whole: float
) -> None:
    tokens = ["train.max_steps=40", "train.eval_every=10", "train.global_batch_size=32", "space=none"]
    tokens += ["search/scheduler=hyperband", f"search.scheduler.resource={resource}", "train.lr=interval(0.1,1)"]
    composition = compose_sweep("digits", tokens, ConfSearchPath())
    space = check_sweep(composition)
    assert hyperband_range(composition, space, lookup_in(composition)) == (first, whole)


# --- the checkpoints of a trial that goes on from another -------------------------------------------------


def checkpoint(folder: Path, step: int, loss: float) -> Path:
    path = folder / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "metrics.json").write_text(f'{{"loss": {loss}}}')
    seal(path)
    return path


def test_a_pinned_checkpoint_survives_its_trainings_tidying_and_gives_way_to_the_next(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "0007", 20, 0.5)
    assert pin(tmp_path, "0007", 0, 20)
    shutil.rmtree(first)
    kept = tmp_path / "0007" / "pinned"
    assert (kept / "step-00000020" / "metrics.json").read_text() == '{"loss": 0.5}'
    checkpoint(tmp_path / "0007", 40, 0.4)
    assert pin(tmp_path, "0007", 0, 40)
    assert pin(tmp_path, "0007", 0, 40)
    assert [path.name for path in kept.iterdir()] == ["step-00000040"]
    assert not pin(tmp_path, "0007", 0, 60)


def test_a_trial_that_takes_over_anothers_checkpoint_keeps_the_best_and_newest_of_its_own_that_are_whole(
    tmp_path: Path,
) -> None:
    checkpoint(tmp_path / "0007", 20, 0.2)
    pin(tmp_path, "0007", 0, 20)
    for step, loss in ((10, 0.1), (20, 0.3), (30, 0.9), (40, 5)):
        checkpoint(tmp_path / "0003", step, loss)
    quarantine(tmp_path / "0003" / "step-00000010")
    (tmp_path / "0003" / "step-00000050.unfinished").mkdir()
    take_over(tmp_path, "0003", Origin("0007", 20, 1), BY_LOSS)
    folder = checkpoint_folder(tmp_path, "0003", 1)
    assert [path.name for path in folder.iterdir()] == ["step-00000020"]
    assert find_damage(folder / "step-00000020") is None
    assert read_metrics(folder / "step-00000020") == {}, "it has not reported them itself"
    assert read_metrics(tmp_path / "0007" / "pinned" / "step-00000020") == {"loss": 0.2}
    kept = sorted(path.name for path in (tmp_path / "0003").glob("step-*"))
    assert kept == ["step-00000020", "step-00000040"]


def test_the_state_that_a_trial_took_over_is_not_its_best_one(tmp_path: Path) -> None:
    write_evaluation(checkpoint(tmp_path / "0007", 20, 0.2), {"loss": 0.2})
    pin(tmp_path, "0007", 0, 20)
    for step, loss in ((10, 0.7), (20, 0.5), (30, 0.9)):
        checkpoint(tmp_path / "0003", step, loss)
    take_over(tmp_path, "0003", Origin("0007", 20, 1), BY_LOSS)
    checkpoint(tmp_path / "0003" / "lineage-1", 30, 0.6)
    checkpoint(tmp_path / "0003" / "lineage-1", 40, 0.8)
    remove_superseded(tmp_path / "0003" / "lineage-1", ("best", "last"), BY_LOSS, finished=False)
    assert steps(tmp_path / "0003" / "lineage-1") == [30, 40]
    take_over(tmp_path, "0003", Origin("0007", 20, 2), BY_LOSS)
    assert (steps(tmp_path / "0003"), steps(tmp_path / "0003" / "lineage-1")) == ([20], [40])


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))
