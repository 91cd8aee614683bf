"""The report of a sweep: a page that needs nothing else, figures that stay legible, and what a running or failed sweep
has to show."""

from __future__ import annotations

import html
import math
import random
import re
import shutil
import signal
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chromium import chromium
from recording import open_recorder
from records import sweep_record, trial_record
from report_page import Page
from verbs import refusal

from sweeps.cli import run_command
from sweeps.config.objectives import Objectives
from sweeps.driver.finish import finish
from sweeps.report.curve_table import curve_table, trained_s
from sweeps.report.dataframes import trials_frame
from sweeps.report.page.report import make_report
from sweeps.report.report_folder import report_folder
from sweeps.tracking import metric_history
from sweeps.tracking.metric_history import fetch_histories
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepTime
from sweeps.tracking.trial_history import Span, spans_as_json
from sweeps.tracking.uris import sqlite_path
from sweeps.tracking.values import read_list

HOSTILE = "</script><script>alert(1)</script>"
CONFIG = """
space:
  train.lr: {type: float, low: 1.0e-5, high: 0.1, log: true}
  train.optimizer: {type: categorical, choices: [adamw, sgd]}
  train.momentum: {type: float, low: 0.8, high: 0.99, when: {train.optimizer: sgd}}
"""


def record_sweep(uri: str, objectives: Objectives, trials: int = 24) -> None:
    """A sweep with a parameter that not all trials have, trials that were pruned or failed, and one that runs."""
    path = sqlite_path(uri)
    assert path is not None
    folder = path.parent / "s"
    folder.mkdir()
    recorder = open_recorder(uri, "s", objectives, folder=folder, config=CONFIG)
    rng, values = random.Random(0), {}
    for number in range(trials):
        trial, sgd = f"{number:04}", number % 2 == 1
        params: dict[str, Any] = {"train.lr": 10 ** rng.uniform(-5, -1), "train.optimizer": "sgd" if sgd else "adamw"}
        params |= {"train.momentum": rng.uniform(0.8, 0.99)} if sgd else {}
        params |= {"note": HOSTILE} if number == 3 else {}
        recorder.trials.start(trial, params, "", 1)
        values[trial] = (abs(math.log10(params["train.lr"]) + 3), rng.random())[: len(objectives.metrics)]
        for step in range(1, 6):
            measured = dict(zip(objectives.metrics, (values[trial][0] + 1 / step, *values[trial][1:]), strict=True))
            recorder.trials.log(trial, 10 * step, measured)
        state = {1: "failed", 4: "pruned", trials - 1: "running"}.get(number, "finished")
        if state != "running":
            recorder.trials.end(trial, state, 50, 1, f"RuntimeError: {HOSTILE}" if state == "failed" else None)
    best = objectives.front({trial: value for trial, value in values.items() if trial != "0001"})
    counts = {"finished": trials - 3, "failed": 1, "pruned": 1, "running": 1, "stopped": 0}
    recorder.update(
        counts, [(trial, values[trial], {}) for trial in best], {"wall_s": 60, "train_s": 30, "goodput": 0.5}
    )
    recorder.close("finished")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture(scope="module")
def page(uri: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    record_sweep(uri, Objectives(("eval/loss",), ("min",)))
    return make_report(load_sweep(uri, "s"), tmp_path_factory.mktemp("report"))


def test_the_page_needs_nothing_from_elsewhere_and_no_text_of_a_trial_can_end_its_script(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    parsed = Page(text)
    assert parsed.addresses
    assert all(address.startswith("#") or address == "data:," for address in parsed.addresses)
    assert "@import" not in text
    assert not re.search(r"url\(", text)
    assert page.stat().st_size < 3_000_000


def test_the_page_has_every_figure_that_the_sweep_can_fill(page: Path) -> None:
    parsed = Page(page.read_text(encoding="utf-8"))
    shown = {name.rpartition("-")[0] for name in parsed.data["figures"]}
    assert shown == {"best", "curves", "parallel", "importance", "slices", "contours", "timeline"}
    assert shown <= set(parsed.ids)
    pictures = {path.stem for path in page.parent.glob("*.png")}
    drawn = "best_so_far learning_curves parallel_coordinates importance slices contours timeline"
    assert pictures == set(drawn.split())


def test_the_table_has_every_trial_with_its_values_and_parameters(page: Path, uri: str) -> None:
    table, record = Page(page.read_text(encoding="utf-8")).data["rows"], load_sweep(uri, "s")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert [row["trial"] for row in rows] == [trial.trial for trial in record.trials]
    assert [row["eval/loss"] for row in rows] == [trial.value for trial in record.trials]
    assert [row["train.momentum"] for row in rows] == [trial.params.get("train.momentum") for trial in record.trials]
    assert rows[1]["state"] == "failed"
    assert HOSTILE in rows[1]["note"]
    assert table["best"] == [record.best.trial if record.best else None]


def test_the_verb_writes_where_it_is_told_and_says_where_and_the_sweeps_run_has_the_report_once(
    page: Path, uri: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    assert run_command(["report", "s", "--tracking-uri", uri, "--output", str(tmp_path / "out")]) == (0, None)
    assert capfd.readouterr() == (f"{tmp_path}/out/report.html\n", "")
    assert (tmp_path / "out" / "report.html").exists()
    record, client = load_sweep(uri, "s"), MlflowClient(uri)
    attached = {Path(file.path).name for file in client.list_artifacts(record.mlflow.run_id, "report")}
    assert attached == {path.name for path in page.parent.iterdir()}
    description = client.get_run(record.mlflow.run_id).data.tags["mlflow.note.content"]
    address = f"#/experiments/{record.mlflow.experiment_id}/runs/{record.mlflow.run_id}/artifacts/report/report.html"
    assert description.count(address) == 1
    assert "Best: trial" in description


def test_a_sweep_with_several_objectives_has_its_front(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    record_sweep(uri, Objectives(("eval/loss", "speed"), ("min", "max")), trials=8)
    record = load_sweep(uri, "s")
    page = make_report(record, tmp_path / "report")
    figures = Page(page.read_text(encoding="utf-8")).data["figures"]
    front = next(trace for trace in figures["front-0"]["data"] if trace["name"] == "Pareto front")
    assert len(front["x"]) == len(record.front) > 1
    assert {"best-0", "best-1", "best-2", "best-3", "importance-0", "importance-1"} <= set(figures)
    assert (page.parent / "pareto_front.png").exists()


def test_the_steps_and_seconds_of_a_curve_are_the_sweeps_own_also_where_a_function_reports_such_metrics(
    tmp_path: Path,
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    recorder = open_recorder(uri, "s", Objectives(("loss",), ("min",)), folder=tmp_path)
    recorder.trials.start("0000", {"lr": 0.1}, "", 1)
    for count, step in enumerate([1, 2, 1, 2], start=1):  # of two epochs
        recorder.trials.log("0000", count, {"loss": 1 / count, "step": step, "elapsed_s": 1e6, "config_id": 7.0})
    recorder.trials.end("0000", "finished", 4, 1)
    recorder.close("finished")
    table = curve_table(load_sweep(uri, "s"))
    assert list(table["step"]) == [1, 2, 3, 4]
    assert list(table["config_id"]) == ["0000"] * 4
    assert table["elapsed_s"].max() < 1000


HOUR = 3600.0


def test_the_seconds_of_a_curve_are_those_with_workers_also_where_drivers_were_killed() -> None:
    killed = Span(held=0, trained=10, workers=("host",))
    again = Span(held=16 * HOUR, trained=16 * HOUR + 10, workers=("host",))
    trial = trial_record(0, 0.5, "running", started=0.0, spans=(killed, again))
    sessions = ((0.0, HOUR), (15 * HOUR, 17 * HOUR))
    record = sweep_record(status="running", trials=[trial], time=SweepTime(wall_s=3 * HOUR, sessions=sessions))
    reported = [0.5 * HOUR, HOUR, 16.5 * HOUR, 17 * HOUR + 5]  # the last one after the driver's last update
    assert trained_s(record, trial, reported) == [0.5 * HOUR, HOUR, 1.5 * HOUR, 2 * HOUR + 5]
    assert trained_s(replace(record, status="interrupted"), trial, [20 * HOUR]) == [2 * HOUR]


def test_the_seconds_of_a_curve_have_those_of_periods_that_did_not_fit_into_the_tag() -> None:
    workers = tuple(f"ip-10-0-12-{rank // 8}.eu-central-1.compute.internal/{rank % 8}" for rank in range(16))
    spans = [Span(held=100.0 * at, trained=100.0 * at + 1, ended=100.0 * at + 60, workers=workers) for at in range(30)]
    kept = read_list(spans_as_json(spans), Span.from_json)
    assert len(kept) < 20
    trial = trial_record(0, 0.5, started=0.0, ended=2960.0, spans=kept, attempts=30)
    record = sweep_record(trials=[trial], time=SweepTime(wall_s=2960.0, sessions=((0.0, 2960.0),)))
    reported = trained_s(record, trial, [span.ended or 0.0 for span in spans])
    assert reported == pytest.approx([60.0 * (at + 1) for at in range(30)], abs=30)
    assert reported == sorted({*reported})


def test_an_unknown_sweep_is_answered_with_the_nearest(page: Path, uri: str) -> None:
    assert "there is no sweep 't'" in refusal("report", "t", "--tracking-uri", uri)


def test_a_report_of_artifacts_that_cannot_be_read_here_leaves_no_empty_page(
    page: Path, uri: str, tmp_path: Path
) -> None:
    shutil.copy(str(sqlite_path(uri)), tmp_path / "mlflow.db")
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("UPDATE runs SET artifact_uri = 'gs://bucket/' || run_uuid")
    arguments = ["--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db", "--output", str(tmp_path / "out")]
    assert "the artifacts in gs://bucket/" in refusal("report", "s", *arguments)
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize("reason", ["a file is in its way", "interrupted"])
def test_a_report_that_cannot_be_made_is_a_warning(
    reason: str, page: Path, uri: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "interrupted":
        monkeypatch.setattr("sweeps.report.page.report.make_report", lambda *_: signal.raise_signal(signal.SIGINT))
    else:
        report_folder(load_sweep(uri, "s")).write_text(reason)
    plan: Any = SimpleNamespace(name="s", folder=Path("s"))
    tracking, checkpoint = SimpleNamespace(uri=uri, report=True), SimpleNamespace(trials=None)
    plan.config = SimpleNamespace(tracking=tracking, checkpoint=checkpoint)
    assert finish(plan).sweep == "s"
    assert "s has no report" in caplog.text
    assert "python -m sweeps report s" in caplog.text
    assert reason == "a file is in its way" or "s has no report: interrupted" in caplog.text


def test_checkpoints_that_cannot_be_removed_at_the_end_are_a_warning(
    page: Path, uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr("sweeps.cleaning.cleaning.plan_cleaning", fails)
    plan: Any = SimpleNamespace(name="s", folder=Path("s"))
    plan.config = SimpleNamespace(tracking=SimpleNamespace(uri=uri, report=False), checkpoint=SimpleNamespace(trials=1))
    assert finish(plan).sweep == "s"
    assert "superfluous checkpoints of s were not removed: " in caplog.text
    assert "read-only file system; `python -m sweeps clean s --keep-best 1` removes them" in caplog.text


def test_histories_are_the_same_from_the_database_and_through_mlflow(
    page: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    runs = [trial.run_id for trial in load_sweep(uri, "s").trials]
    by_sql = fetch_histories(uri, runs, "eval/loss")
    assert [len(points) for points in by_sql.values()] == [5] * 24
    assert fetch_histories(uri, runs, "nothing") == {}
    client = MlflowClient(uri)
    for number, value in enumerate((math.nan, math.inf, 7.0)):
        client.log_metric(runs[0], "eval/loss", value, timestamp=2**41 + number, step=50 - 10 * number)
    again = fetch_histories(uri, runs[:1], "eval/loss")[runs[0]]
    kept = [(point.step, point.value) for point in by_sql[runs[0]][3:]]
    assert [(point.step, point.value) for point in again[2:]] == [(30, 7.0), *kept]
    by_sql = fetch_histories(uri, runs, "eval/loss")
    monkeypatch.setattr(metric_history, "queryable_file", lambda uri: None)
    assert fetch_histories(uri, runs, "eval/loss") == by_sql
    assert fetch_histories(uri, runs, "nothing") == {}


@pytest.mark.slow
def test_a_browser_draws_every_figure_without_a_complaint(page: Path) -> None:
    cells = """["=1+1+cmd()", "@a", "-b", "-1.5e-3", -5, null, 'a "b", c'].map(quoted).join("|")"""
    title = "'drawn ' + document.querySelectorAll('.main-svg').length + ' CSV ' + " + cells
    script = f"setTimeout(() => document.title = {title}, 5000)"
    (page.parent / "probe.html").write_text(
        page.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8"
    )
    options = "--headless --no-sandbox --disable-gpu --window-size=1280,9000 --enable-logging=stderr"
    command = [chromium(), *options.split(), "--virtual-time-budget=15000", "--dump-dom"]
    command.append((page.parent / "probe.html").as_uri())
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
    (page.parent / "probe.html").unlink()
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in complaints if "WebGL" not in line] == []  # it has no graphics card here, and says so
    drawn = re.search(r"<title>drawn (\d+)", done.stdout)
    assert drawn is not None
    assert int(drawn[1]) >= len(Page(page.read_text(encoding="utf-8")).data["figures"])
    # No cell is a formula for a spreadsheet.
    assert """ CSV '=1+1+cmd()|'@a|'-b|-1.5e-3|-5||"a ""b"", c"</title>""" in html.unescape(done.stdout)


def test_an_objective_named_like_another_column_of_the_trials_has_its_values_there() -> None:
    record = sweep_record(metrics=("seconds",), trials=[trial_record("0000", value=0.25, values=(0.25,))])
    assert list(trials_frame([record])["seconds"]) == [0.25]
