"""Searches that are simulated with recorded learning curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from recording import open_recorder
from rich.console import Console
from running import run, verb

from sweeps.config.space import CategoricalDistribution, FloatDistribution
from sweeps.errors import UserError
from sweeps.plan.plan import Plan, make_plan
from sweeps.simulate.inputs import read_inputs
from sweeps.simulate.lane_rates import LaneRates
from sweeps.simulate.recorded_table import CurveTable, RecordedTrial, Report, point_key, read_table
from sweeps.simulate.run import SimulationResult, simulate
from sweeps.simulate.simulation import SimulatedTrial, Simulation
from sweeps.simulate.simulation_summary import print_simulation
from sweeps.simulate.surrogate import ForestCurve, NearestCurve
from sweeps.space.space import Space
from sweeps.space.suggester import RandomDraws

STEPS = range(25, 301, 25)
STEP_S = 2.0


def planned(*overrides: str) -> Plan:
    return make_plan(["conf=digits", *overrides], [], "simulated", "", where="elsewhere")


def accuracy(point: dict[str, Any], step: int) -> float:
    far = abs(math.log10(point["train.lr"]) + 2)
    end = 1 - 0.1 * far - 0.1 * point["model.dropout"] - 0.03 * (point["train.optimizer"] == "sgd")
    return float(end + 0.002 * point.get("model.depth", 0) - (1 + far) * 12 / step)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred random points of the space of digits, of which every fifth was stopped half way."""
    plan, draws = planned(), RandomDraws(0)
    rows = []
    for number in range(100):
        point = plan.space.sample(draws, plan.points.lookup)
        for index, step in enumerate(STEPS if number % 5 else STEPS[:6]):
            report = {"eval/accuracy": accuracy(point, step), "epochs": step / 100}
            rows.append({"config_id": number, "step": step, "elapsed_s": STEP_S * (index + 1), **point, **report})
    file = tmp_path_factory.mktemp("curves") / "curves.parquet"
    pd.DataFrame(rows).to_parquet(file)
    return file


@pytest.fixture(scope="module")
def curves(table: Path) -> CurveTable:
    plan = planned()
    return read_table(table, plan.space, plan.points.lookup, ["eval/accuracy"])


def simulated(table: Path, *overrides: str, **options: Any) -> SimulationResult:
    inputs = read_inputs(planned("search.num_trials=12", *overrides), table)
    return simulate(inputs, **{"between": "nearest", **options})


def test_trials_take_the_simulated_workers_in_turn(table: Path) -> None:
    whole = STEP_S * len(STEPS)
    for workers, turns in ((1, 12), (4, 3), (50, 1)):
        record = simulated(table, "search/scheduler=none", workers=workers).sweeps[0].record
        assert record.time.wall_s == pytest.approx(turns * whole)
        assert record.time.train_s == pytest.approx(12 * whole)
        assert record.counts["finished"] == 12


@pytest.mark.parametrize(
    ("scheduler", "options"),
    [("asha", ["resource=epochs", "grace=0.25"]), ("hyperband", ["resource=steps"]),
     ("freeze_thaw", ["resource=steps", "grace=25"])],
)  # fmt: skip
def test_schedulers_end_trials_early_and_the_best_trains_to_its_end(
    table: Path, scheduler: str, options: list[str]
) -> None:
    overrides = [f"search.scheduler.{option}" for option in options]
    result = simulated(table, f"search/scheduler={scheduler}", *overrides, workers=3)
    record = result.sweeps[0].record
    assert record.counts["pruned"] > 0
    assert record.counts["finished"] + record.counts["pruned"] == 12
    assert record.time.train_s < 12 * STEP_S * len(STEPS)
    assert record.best is not None
    assert record.best.steps == STEPS[-1]
    assert result.sweeps[0].improvements[-1].value == record.best.value


def test_rungs_follow_the_length_of_the_tables_curves_whatever_the_configs_is(table: Path) -> None:
    own = ["search/scheduler=freeze_thaw", "search.scheduler.resource=steps", "search.scheduler.grace=25"]
    shorter, same, longer = (
        simulated(table, *own, f"train.max_steps={each}", "train.eval_every=25", workers=3).sweeps[0]
        for each in (100, STEPS[-1], 900)
    )
    assert shorter.improvements == same.improvements == longer.improvements
    assert shorter.record.counts == same.record.counts == longer.record.counts


def test_our_own_search_is_simulated_and_finishes_within_a_budget_of_time(table: Path) -> None:
    overrides = ["search=sweeps", "search.num_trials=1000", f"search.stop.wall_hours={120 / 3600}"]
    sweep = simulate(read_inputs(planned(*overrides), table), workers=3, between="nearest").sweeps[0]
    assert sweep.record.counts["finished"] > 2
    assert sweep.record.time.wall_s == pytest.approx(120, abs=STEP_S)
    assert sweep.record.best is not None
    assert sweep.improvements[-1].regret < 0.1


def test_paused_trials_leave_their_workers_to_others(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[int] = []
    report = Simulation._report

    def counted(self: Simulation, trial: SimulatedTrial) -> None:
        running.append(sum(each.status == "running" for each in self.trials))
        report(self, trial)

    monkeypatch.setattr(Simulation, "_report", counted)
    overrides = ["search/scheduler=hyperband", "search.scheduler.resource=steps", "search.num_trials=27"]
    record = simulate(read_inputs(planned(*overrides), table), workers=3, between="nearest").sweeps[0].record
    assert max(running) == 3
    assert record.counts["finished"] + record.counts["pruned"] == 27


def test_a_budget_of_simulated_time_ends_the_search_when_it_is_used_up_between_two_reports(
    table: Path,
) -> None:
    sweep = simulated(table, f"search.stop.wall_hours={30.5 / 3600}", "search/scheduler=none", workers=2).sweeps[0]
    assert sweep.record.counts["finished"] == 2
    assert sweep.record.counts["stopped"] == 2
    assert sweep.record.time.wall_s == pytest.approx(30.5)
    assert "search.stop.wall_hours" in str(sweep.ended_because)


def test_the_same_seed_makes_the_same_search_and_another_seed_another_one(table: Path) -> None:
    two = simulated(table, seeds=2).sweeps
    again = simulated(table, seeds=2).sweeps
    assert [each.record.trials for each in again] == [each.record.trials for each in two]
    assert two[0].record.trials[1:] != two[1].record.trials[1:]


def test_recorded_curves_are_answered_as_they_are_and_those_that_ended_early_go_on(curves: CurveTable) -> None:
    plan = planned()
    forest = ForestCurve(curves, plan.space, ["eval/accuracy"])
    for trial in curves.trials[:10]:
        answered = forest.curve(trial.point)
        assert answered[: len(trial.reports)] == trial.reports
        assert [report.step for report in answered] == list(STEPS)
        assert answered[-1].elapsed_s == pytest.approx(STEP_S * len(STEPS), rel=0.01)
        assert answered[-1].metrics["eval/accuracy"] == pytest.approx(accuracy(trial.point, STEPS[-1]), abs=0.1)


def test_a_forest_predicts_points_between_and_says_how_well(curves: CurveTable) -> None:
    plan = planned()
    forest, nearest = ForestCurve(curves, plan.space, ["eval/accuracy"]), NearestCurve(curves, plan.space)
    draws = RandomDraws(1)
    points = [plan.space.sample(draws, plan.points.lookup) for _ in range(40)]

    def error(source: ForestCurve | NearestCurve) -> float:
        last = [(source.curve(point)[-1].metrics["eval/accuracy"], accuracy(point, STEPS[-1])) for point in points]
        return math.sqrt(sum((one - other) ** 2 for one, other in last) / len(last))

    assert forest.error is not None
    assert error(forest) < min(error(nearest), 0.6 * forest.error.spread)
    assert 0.5 * forest.error.rmse < error(forest) < 2 * forest.error.rmse
    assert forest.error.rank_correlation > 0.8


def test_epochs_of_a_predicted_curve_are_those_of_its_steps_also_of_a_long_one_and_of_one_that_was_stopped() -> None:
    space, steps = Space({"x": FloatDistribution(type="float", low=0.0, high=1.0)}), range(1, 101)
    reports = [Report(step, 2.0 * step, {"loss": 1 / step, "epochs": step / 4}) for step in steps]
    trials = [RecordedTrial({"x": each / 9}, reports[::2] if each % 2 else reports[:50]) for each in range(10)]
    table = CurveTable("table", trials, by_point={point_key(trial.point): trial for trial in trials})
    forest = ForestCurve(table, space, ["loss"], ["epochs"])
    for x in (0.0, 0.3, 2 / 9, 0.7):
        curve = forest.curve({"x": x})
        assert curve[-1].step == 99
        assert [report.metrics["epochs"] for report in curve] == pytest.approx([report.step / 4 for report in curve])


def test_a_point_of_the_table_is_not_asked_of_the_forest(table: Path, curves: CurveTable) -> None:
    points = [trial.point for trial in curves.whole[:3]]
    override = "search.points=" + json.dumps(points).replace('"', "").replace(":", ": ")
    whole = ("search/scheduler=none", "search.default_first=false")
    record = simulated(table, override, *whole, between="forest").sweeps[0].record
    values = [trial.reports[-1].metrics["eval/accuracy"] for trial in curves.whole[:3]]
    assert [trial.value for trial in record.trials[:3]] == values


def test_a_curve_that_diverges_is_a_failed_trial(table: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(table)
    frame.loc[frame["step"] >= 100, "eval/accuracy"] = math.nan
    frame.to_parquet(tmp_path / "diverging.parquet")
    record = simulated(tmp_path / "diverging.parquet", "search/scheduler=none").sweeps[0].record
    assert record.counts["failed"] == 12
    assert record.status == "failed"
    assert record.trials[0].error == "eval/accuracy=nan"


def test_configurations_that_break_a_limit_are_neither_the_best_of_the_table_nor_of_the_search(
    table: Path, tmp_path: Path
) -> None:
    frame = pd.read_parquet(table)
    last = frame.groupby("config_id")["eval/accuracy"].transform("last")
    # The better half breaks the limit, at its second report only.
    frame["system/memory_mib"] = 100.0 + 100 * ((last > last.median()) & (frame["step"] == STEPS[1]))
    frame.to_parquet(tmp_path / "limited.parquet")
    limits = "search.limits={system/memory_mib: {max: 150}}"
    result = simulated(tmp_path / "limited.parquet", limits, "search/scheduler=none", seeds=2)
    kept = frame.groupby("config_id").filter(lambda rows: rows["system/memory_mib"].max() < 150)
    assert result.scale.best == kept["eval/accuracy"].max() < frame["eval/accuracy"].max()
    for sweep in result.sweeps:
        assert any(trial.violation for trial in sweep.record.trials)
        assert sweep.record.best is not None
        assert sweep.improvements[-1].value == sweep.record.best.value
        assert sweep.improvements[-1].regret == result.scale.best - sweep.record.best.value


def test_a_value_that_is_better_than_the_table_has_no_regret(table: Path) -> None:
    for metric, mode in (("eval/accuracy", "max"), ("eval/accuracy", "min")):
        scale = read_inputs(planned(f"search.metric={metric}", f"search.mode={mode}"), table).scale
        better = scale.sign * 0.01
        assert scale.regret(scale.best + better) == 0
        assert scale.regret(scale.best - better) == pytest.approx(0.01)
        assert [each.regret for each in scale.improvements([(1, scale.best - better), (2, scale.best + better)])] == [
            pytest.approx(0.01),
            0,
        ]


def test_where_the_last_report_counts_an_earlier_one_is_no_improvement(table: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(table)
    falling = frame["step"] > STEPS[4]
    frame["eval/accuracy"] -= falling * 0.5
    frame.to_parquet(tmp_path / "falling.parquet")
    result = simulated(tmp_path / "falling.parquet", "search.value=last", "search/scheduler=none")
    (sweep,) = result.sweeps
    whole = STEP_S * len(STEPS)
    assert sweep.record.best is not None
    assert sweep.improvements[-1].value == sweep.record.best.value
    assert sweep.improvements[-1].value < 0.5
    assert all(each.time_s % whole == pytest.approx(0) for each in sweep.improvements)


def test_a_table_without_a_value_at_the_end_is_refused(table: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(table)
    ended = frame.groupby("config_id")["step"].transform("max") == STEPS[-1]
    frame.loc[ended, "eval/accuracy"] = math.nan
    frame.to_parquet(tmp_path / "diverged.parquet")
    message = "none of the 80 configurations that were trained to the end has finite values of eval/accuracy; record"
    with pytest.raises(UserError, match=message):
        simulated(tmp_path / "diverged.parquet")


@pytest.mark.parametrize(
    ("change", "overrides", "message"),
    [
        ({"drop": "train.lr"}, [], "no column train.lr, which is searched"),
        ({"drop": "eval/accuracy"}, [], "no column eval/accuracy, which is needed by the search"),
        ({"drop": "elapsed_s"}, [], "no column elapsed_s"),
        ({}, ["search.scheduler.resource=samples"], "search.scheduler.resource=samples: .* has no column samples"),
        ({}, ["search/scheduler=pbt", "search/sampler=random"], "search.scheduler.kind=pbt: changes values"),
        ({}, ["search.confirm=2"], "search.confirm=2: repeats train with other seeds, .* search.confirm=0"),
        (
            {},
            ["search.stages=[{overrides: ['train.max_steps=2'], num_trials: 5}]"],
            "search.stages: has 1, whose trainings differ .* search.stages=\\[\\]",
        ),
        ({}, ["space.train.lr.low=1", "space.train.lr.high=2"], "none of its 100 configurations lies in the space"),
        ({"text": True}, [], "cannot be read as a Parquet file"),
        ({"missing": True}, [], "there is no such file; give a table"),
    ],
)
def test_a_table_that_does_not_fit_the_sweep_is_refused(
    table: Path, tmp_path: Path, change: dict[str, Any], overrides: list[str], message: str
) -> None:
    file = tmp_path / "changed.parquet"
    if "text" in change:
        file.write_text("no table")
    elif "missing" not in change:
        pd.read_parquet(table).drop(columns=change.get("drop", [])).to_parquet(file)
    with pytest.raises(UserError, match=message):
        simulated(file, *overrides)


def test_the_command_prints_regret_or_the_document_of_a_sweep(
    table: Path, typed: Callable[..., tuple[int, str, str]], working_folder: Path
) -> None:
    command = ["run", "conf=digits", "--simulate", str(table), "--between=nearest", "search.num_trials=6"]
    status, text, _ = typed(*command, "--seeds=3", "--workers=2")
    assert status == 0
    assert "100 configurations, 80 of them trained to the end (step 300); 2 simulated workers" in text
    assert "+-" in text
    status, _, err = typed(*command, "--lane-rates=2=160", "--json")
    assert status == 2
    assert "--lane-rates=2=160: rates must be above 0, and one must be for 1 trial; give --lane-rates" in err
    status, out, _ = typed(*command, "--lane-rates=1 trains 100; 2 train 160 tokens a second", "--json")
    assert status == 0
    document = json.loads(out)
    assert document["counts"]["finished"] + document["counts"]["pruned"] == len(document["trials"]) == 6
    (seed,) = document["simulation"]["seeds"]
    assert document["simulation"]["trials_per_group"] == 1
    assert document["best"]["value"] == seed["value"] == seed["improvements"][-1][1]
    assert seed["normalized_regret"] >= 0
    assert list(working_folder.iterdir()) == []
    for wrong in ("--detach", "--dry-run"):
        assert typed(*command, wrong)[0] == 2
    status, _, err = typed("run", "conf=digits", "--seeds=3")
    assert status == 2
    assert "need --simulate TABLE" in err


@pytest.mark.parametrize(
    ("choices", "features"),
    [
        ([3, 0.5, "auto", "3", True, None, [1, 2]], [3, 0.5, "auto", "3", True, None, [1, 2]]),
        ([3, "3"], ["3", "3"]),
        ([None, "null", "auto"], ["null", "auto"]),
    ],
    ids=["all", "texts-like-numbers", "texts-like-null"],
)
def test_choices_of_several_types_are_read_back_from_the_curves_of_a_sweep(
    choices: list[Any],
    features: list[Any],
    uri: str,
    typed: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    recorder = open_recorder(uri, "first")
    for number, choice in enumerate(features):
        recorder.trials.start(f"{number:04}", {"features": choice}, "", 1)
        recorder.trials.log(f"{number:04}", 1, {"eval/loss": number / 8}, 4_000_000_000_000)
        recorder.trials.end(f"{number:04}", "finished", 1, 1, None)
    recorder.update({"finished": len(features)}, [("0000", (0.0,), {"features": features[0]})], {"wall_s": 7.0})
    assert not recorder.close("finished")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert typed("show", "first", "--curves", str(tmp_path / "curves.parquet"))[0] == 0
    space = Space({"features": CategoricalDistribution(type="categorical", choices=choices)})
    table = read_table(tmp_path / "curves.parquet", space, lambda path: None, ["eval/loss"])
    assert [repr(trial.point["features"]) for trial in table.trials] == [*map(repr, features)]


def test_the_curves_of_a_sweep_are_written_with_the_time_that_trials_held_workers(
    uri: str, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorder = open_recorder(uri, "first")
    for number in range(3):
        trial = f"{number:04}"
        recorder.trials.start(trial, {"train.lr": 0.1 * (number + 1), "kind": [1, 2], "cap": None}, "", 1)
        recorder.trials.log(trial, 0, {"eval/loss": 9.0}, 1_000_000, competes=False)  # a table has steps from 1 on
        for step in (1, 2):
            now = 1000.0 + 10 * step
            recorder.trials.log(trial, step, {"eval/loss": 1.0 / step, "train/loss": float(step)}, round(now * 1000))
        recorder.trials.end(trial, "failed" if number == 2 else "finished", 2, 1, None)
    recorder.update({"finished": 2}, [("0000", (0.5,), {"train.lr": 0.1})], {"wall_s": 7.0})
    assert not recorder.close("finished")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    file = tmp_path / "curves.parquet"
    assert typed("show", "first", "--curves", str(file))[0] == 0
    frame = pd.read_parquet(file)
    parameters, metrics = (
        {"train.lr", "kind", "cap"},
        {"eval/loss", "train/loss"},
    )  # a searched null is a column as well
    assert {"config_id", "step", "elapsed_s"} | parameters | metrics <= set(frame.columns)
    assert list(frame["config_id"]) == ["0000", "0000", "0001", "0001"]
    assert list(frame["step"]) == [1, 2, 1, 2]
    assert list(frame["eval/loss"]) == [1.0, 0.5, 1.0, 0.5]
    assert list(frame["kind"]) == ["[1, 2]"] * 4


FUNCTION = """
import time

import ray.train


def train(config):
    for step in range(1, 10):
        time.sleep(0.02)
        ray.train.report({"loss": abs(config["lr"] - 0.01) * 100 + abs(config["momentum"] - 0.9) + 1 / step})
"""
CONFIG = """
defaults:
  - {task: function}
  - {search: optuna_asha}
  - {scaling: single_worker}
  - {checkpoint: best_and_last}
  - {tracking: mlflow}
  - {cluster: local}
  - _self_
name: mine
seed: 0
output_dir: outputs
task: {_target_: curves.train, arguments: {lr: 0.001, momentum: 0.9}}
search: {metric: loss, mode: min, num_trials: 14}
space:
  task.arguments.lr: {type: float, low: 1e-4, high: 1e-1, log: true}
  task.arguments.momentum: {type: float, low: 0.5, high: 0.99}
"""


@pytest.mark.slow
def test_a_simulation_of_a_real_sweep_on_its_own_curves_makes_the_same_decisions(tmp_path: Path) -> None:
    """The searcher, the sampler and the scheduler are called as Tune calls them: with one worker all points, and the
    ends of all trials, are those of the real sweep."""
    (tmp_path / "curves.py").write_text(FUNCTION)
    (tmp_path / "mine.yaml").write_text(CONFIG)
    config = ["conf=mine.yaml", "search.max_concurrent=1"]
    real = run(tmp_path, *config, "--name=real").document
    assert real["counts"]["pruned"] > 0
    verb(tmp_path, "show", "real", "--curves=curves.parquet", within_s=120)
    simulated = verb(tmp_path, "run", *config, "--simulate=curves.parquet", "--json", within_s=120).document
    compared = ("trial", "state", "value", "params", "steps")
    assert [{key: trial[key] for key in compared} for trial in simulated["trials"]] == [
        {key: trial[key] for key in compared} for trial in real["trials"]
    ]
    assert verb(tmp_path, "replay", "real", "--json", within_s=120).document["differences"] == []
    pruned = next(trial["trial"] for trial in real["trials"] if trial["state"] == "pruned")
    shown = verb(tmp_path, "show", "real", f"--trial={pruned}", "--why", "--json", within_s=120).document
    assert shown["why"][-1].startswith("stopped: at the rung of")


LANES = "1=100,2=160,4=200"


def sharing(folder: Path, *overrides: str, rates: str | None = LANES, workers: int | None = 1) -> SimulationResult:
    """A search of adapters, whose trainings take 10 s alone, or 20 s with the larger learning rate."""
    rows = [
        {"config_id": lr, "step": step, "elapsed_s": lr * 5000 * step, "train.lr": lr, "eval/loss": 1 / step}
        for lr in (0.001, 0.002)
        for step in (1, 2)
    ]
    pd.DataFrame(rows).to_parquet(folder / "curves.parquet")
    search = ("search/scheduler=none", "search.default_first=false", "search.duplicates=true")
    space = ("space=none", "train.lr=choice(0.001, 0.002)", "scaling.num_workers=2")
    plan = make_plan(["conf=llm_lora", *space, *search, *overrides], [], "sharing", "", where="elsewhere")
    lanes = None if rates is None else LaneRates.parsed(rates)
    return simulate(read_inputs(plan, folder / "curves.parquet"), workers=workers, between="nearest", rates=lanes)


def tried(*rates: float) -> tuple[str, str]:
    points = ", ".join(f"{{train.lr: {each}}}" for each in rates)
    return f"search.points=[{points}]", f"search.num_trials={len(rates)}"


SHORT, LONG = 0.001, 0.002


@pytest.mark.parametrize(
    ("together", "trials", "wall_s"),
    [
        (1, [SHORT] * 4, 40),
        (2, [SHORT] * 4, 2 * 10 / 0.8),
        (4, [SHORT] * 4, 10 / 0.5),
        ("auto", [SHORT] * 4, 10 / 0.5),
        # The second pair has a trial that is alone at its end.
        (2, [SHORT] * 3, 10 / 0.8 + 10),
        (2, [SHORT, LONG], 10 / 0.8 + 10),
        # The speed of three is between those of two and of four.
        (4, [SHORT] * 3, 10 / 0.6),
    ],
)
def test_trials_that_share_workers_train_at_the_measured_speed(
    together: int | str, trials: list[float], wall_s: float, tmp_path: Path
) -> None:
    (sweep,) = sharing(tmp_path, f"scaling.trials_per_group={together}", *tried(*trials)).sweeps
    assert sweep.record.counts["finished"] == len(trials)
    assert sweep.record.time.wall_s == pytest.approx(wall_s)
    assert sweep.record.time.train_s == pytest.approx(sum(each.ended - each.started for each in sweep.record.trials))


def test_groups_share_the_trials_evenly(tmp_path: Path) -> None:
    four = ("scaling.trials_per_group=4", *tried(*[SHORT] * 4))
    result = sharing(tmp_path, *four, workers=2)
    assert (result.workers, result.lanes) == (2, 4)
    assert result.sweeps[0].record.time.wall_s == pytest.approx(10 / 0.8)
    result = sharing(tmp_path, *four, "search.max_concurrent=3", workers=None)
    assert (result.workers, result.lanes) == (1, 4)
    assert result.sweeps[0].record.time.wall_s == pytest.approx(10 / 0.6 + 10)


def test_a_trial_costs_its_part_of_the_workers(tmp_path: Path) -> None:
    budget = "search.stop.cost={limit: 28, per_cpu_hour: 3600}"  # 14 s of two workers
    for together, finished in ((1, 1), (2, 2)):
        each = f"scaling.trials_per_group={together}"
        (sweep,) = sharing(tmp_path, each, budget, *tried(*[SHORT] * 4)).sweeps
        assert sweep.record.counts["finished"] == finished
        assert sweep.record.time.wall_s == pytest.approx(14)
        assert "search.stop.cost.limit=28 is used up" in str(sweep.ended_because)


def test_without_measured_speeds_each_trial_has_its_own_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    four = ("scaling.trials_per_group=4", *tried(*[SHORT] * 4))
    result = sharing(tmp_path, *four, rates=None)
    assert result.sweeps[0].record.time.wall_s == pytest.approx(40)
    print_simulation(result, Console(width=200))
    assert "trials do not share their workers, since their speeds are then unknown" in capsys.readouterr().out
    with pytest.raises(UserError, match="trials_per_group=4: --lane-rates has no rate above 2; give --lane-rates"):
        sharing(tmp_path, *four, rates="1=100,2=160")


@pytest.mark.parametrize("rates", ["2=160", "1=0", "1=100,x", "0=5,1=100", "", "1=nan"])
def test_rates_without_that_of_one_trial_are_refused(rates: str) -> None:
    with pytest.raises(ValueError, match="rates must"):
        LaneRates.parsed(rates)
