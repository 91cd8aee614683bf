"""Tables of learning curves that the benchmarks record, and problems made of them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))

from curve_files import read_space, write_curves


def test_a_table_carries_its_space_and_one_without_it_tells_its_space_by_its_columns(tmp_path: Path) -> None:
    space = {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "kind": {"type": "categorical", "choices": ["a", "b", "c"]},
    }
    rows = [
        {"config_id": number, "step": step, "elapsed_s": step, "lr": lr, "kind": kind, "eval/loss": lr / step}
        for number, (lr, kind) in enumerate([(0.001, "a"), (0.5, "b"), (0.02, "a")])
        for step in (1, 2)
    ]
    write_curves(tmp_path / "with.parquet", rows, space)
    assert read_space(tmp_path / "with.parquet")["lr"].high == 1.0  # type: ignore[union-attr]
    pd.DataFrame(rows).to_parquet(tmp_path / "without.parquet")
    told = read_space(tmp_path / "without.parquet")
    assert set(told) == {"lr", "kind"}
    assert (told["lr"].low, told["lr"].high, told["lr"].log) == (0.001, 0.5, True)  # type: ignore[union-attr]
    assert told["kind"].choices == ["a", "b"]  # type: ignore[union-attr]


def test_a_published_grid_becomes_a_table_whose_points_are_answered_as_they_were_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))
    from published_tables import rows_of, space_of
    from search_problems import METRIC, table_problem

    choices = {"activation": ["relu", "tanh"], "rate": [1e-8, 0.1, 1]}
    trained = {
        f"{a}{b}": {"val_acc": [0.5, 0.7 + a / 10], "train_time": [a + 1, b + 1]} for a in (0, 1) for b in (0, 1, 2)
    }
    grid = SimpleNamespace(search_space=choices, metric_names=["val_acc"], _dataset=trained)
    write_curves(tmp_path / "grid.parquet", rows_of(grid), space_of(choices))
    problem = table_problem(tmp_path / "grid.parquet", "eval/loss", "min")
    assert problem.error is None  # no surrogate
    (report,) = problem.source(0).curve({"activation": "tanh", "rate": 1})
    assert (report.step, report.elapsed_s) == (1, 2.5)
    assert report.metrics[METRIC] == pytest.approx(0.35)
    assert (problem.best, problem.median) == (pytest.approx(0.35), pytest.approx(0.375))


def test_tables_of_a_public_repository_are_fetched_with_its_licence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent.parent.parent / "benchmarks"))
    import taskset_tables

    rates = dict.fromkeys(taskset_tables.PARAMETERS.values(), 0.25)
    diverged = {"hp": {**rates, "beta1": 0.9}, "valid": {"loss": [2.0, 50.0, math.nan]}}
    trainings = [{"hp": rates, "valid": {"loss": [1.0, 0.5, 0.25]}}, diverged]
    repository, to = tmp_path / "repository", tmp_path / "tables"
    (repository / taskset_tables.FOLDER).mkdir(parents=True)
    (repository / taskset_tables.FOLDER / f"{taskset_tables.PREFIX}rnn.json").write_text(json.dumps(trainings))
    (repository / "LICENSE").write_text("Apache License\n  Version 2.0\n\nTERMS")
    git = ("git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "tables")):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(sys, "argv", ["taskset_tables.py", f"--to={to}", f"--repository={repository.as_uri()}"])
    taskset_tables.main()
    assert "Apache License Version 2.0" in capsys.readouterr().out
    table = pd.read_parquet(to / "taskset_rnn.parquet")
    assert table["eval/loss"].tolist() == pytest.approx([math.log(each) for each in (1, 0.5, 0.25, 2, 20, 20)])
    assert table["train.one_minus_beta1"].unique().tolist() == pytest.approx([0.75, 0.1])
    assert set(read_space(to / "taskset_rnn.parquet")) == set(taskset_tables.PARAMETERS)


@pytest.mark.slow
def test_a_recorded_table_is_a_problem_whose_best_configuration_has_no_regret(tmp_path: Path) -> None:
    import record_tables
    from search_problems import METRIC, table_problem

    from sweeps.simulate.simulation import Reported

    rows = record_tables.record(record_tables.TASKS["diabetes"], 40)
    write_curves(tmp_path / "diabetes.parquet", rows, record_tables.SPACE)
    frame = pd.read_parquet(tmp_path / "diabetes.parquet")
    assert frame.groupby("config_id").size().eq(record_tables.EVALUATIONS).all()
    assert frame["train.momentum"].isna().equals(frame["train.optimizer"] == "adamw")
    first, last = (frame[frame["step"] == step]["eval/loss"].median() for step in (20, 540))
    assert last < first  # the networks learn
    problem = table_problem(tmp_path / "diabetes.parquet", "eval/loss", "min")
    best = frame.loc[frame["eval/loss"].idxmin()]
    values = {path: best[path] for path in problem.space if not pd.isna(best[path])}
    point = {path: value.item() if hasattr(value, "item") else value for path, value in values.items()}
    curve = problem.source(0).curve(point)
    made = [Reported(report.elapsed_s, 0, report.step, dict(report.metrics)) for report in curve]
    assert min(report.metrics[METRIC] for report in made) == pytest.approx(best["eval/loss"], rel=1e-6)
    assert problem.regret(made, {0: point}) == pytest.approx(0, abs=1e-6)
