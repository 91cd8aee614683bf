"""MLflow's pages of a sweep: descriptions of runs, and the addresses with which links open the runs page."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import mlflow
import pytest
from chromium import chromium
from mlflow import MlflowClient
from mlflow.artifacts import load_text
from recording import CONFIG, POINT, Server, open_recorder, record_small_sweep
from records import sweep_record, trial_record

from sweeps.config.objectives import Objectives
from sweeps.tracking.metric_history import fetch_metric_names
from sweeps.tracking.mlflow_pages import experiment_page, run_page, trials_page
from sweeps.tracking.mlflow_texts import note
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.trial_note import trial_note
from sweeps.tracking.trial_progress import TrialProgress

LOSS = Objectives(("eval/loss",), ("min",))


def notes(uri: str, sweep: str = "digits-1") -> dict[str, str]:
    client = MlflowClient(uri)
    trials = load_sweep(uri, sweep).trials
    return {trial.trial: client.get_run(trial.run_id).data.tags["mlflow.note.content"] for trial in trials}


# --- descriptions ---------------------------------------------------------------------------------------------------


def test_a_sweep_leads_to_its_trials_and_a_trial_says_how_it_ended_with_which_values_and_what_to_type(uri: str) -> None:
    record_small_sweep(uri)
    sweep = load_sweep(uri, "digits-1")
    number, of_sweep = sweep.mlflow.experiment_id, sweep.tags["mlflow.note.content"]
    assert f"({trials_page(number, 'digits-1', 'eval/loss', 'min')})" in of_sweep
    assert f"({trials_page(number, 'digits-1', 'eval/loss', 'min', charts=True)})" in of_sweep
    assert "Each sweep is a run" in MlflowClient(uri).get_experiment(number).tags["mlflow.note.content"]
    assert run_page(sweep.mlflow).startswith(f"#/experiments/{number}/runs/{sweep.mlflow.run_id}?")
    told = notes(uri)
    assert "**finished** after" in told["0"]
    assert "the scheduler ended it early" in told["1"]
    assert "Error: `ValueError: no`" in told["2"]
    assert "python -m sweeps resume digits-1" in told["3"]
    for trial, text in told.items():
        assert "| `model.lora.r` | 16 |" in text
        for verb in ("show", "logs", "reproduce"):
            assert f"python -m sweeps {verb} digits-1 --trial {trial}" in text
    assert "Best value: `eval/loss` = **" in told["0"]
    assert " at step " in told["0"]


@pytest.mark.parametrize(
    ("steps", "saved_step", "told"),
    [
        (0, None, "after 0 steps, before its end. It has saved no state; `resume` continues it."),
        (30, None, "after 30 steps, before its end. It has saved no state; `resume` continues it."),
        (30, 20, "before its end. Its state of step 20 is saved; `resume` continues it."),
        (30, 30, "before its end. It saved its state; `resume` continues it."),
    ],
)
def test_a_stopped_trial_says_what_is_left_of_its_work(steps: int, saved_step: int | None, told: str) -> None:
    trial = TrialProgress(POINT, state="stopped", steps=steps, saved_step=saved_step)
    assert told in trial_note("digits-1", "0", trial, LOSS)


def test_a_description_is_there_from_the_start_and_follows_retries(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0000", POINT, "", 1)
    recorder.trials.log("0000", 10, {"eval/loss": 0.5})
    recorder.trials.log("0000", 20, {"eval/loss": 0.7})
    recorder.trials.record_checkpoint("0000", "/none", "best")
    recorder.close("interrupted")
    assert "**running**." in notes(uri)["0000"]

    recorder = open_recorder(uri, resume=True)
    recorder.trials.start("0000", POINT, "", 2)
    recorder.close("interrupted")
    assert "**running**, attempt 2." in notes(uri)["0000"]

    recorder = open_recorder(uri, resume=True)
    recorder.trials.end("0000", "finished", 30, 2)
    recorder.close("finished")
    told = notes(uri)["0000"]
    assert "**finished** after 30 steps in 2 attempts." in told
    assert "`eval/loss` = **0.5** (min) at step 10" in told  # read back from MLflow
    assert load_sweep(uri, "digits-1").trials[0].best_step == 10


def test_a_description_fits_into_a_tag_whatever_the_trial_has() -> None:
    params = {f"model.part_{number}.{'x' * 60}": "a|`" * 500 for number in range(60)}
    trial = TrialProgress(params, state="failed", error="E" * 5000, violation="V" * 5000, exploits=3)
    told = trial_note("s" * 120, "0001", trial, LOSS)
    assert len(told) < 8000
    assert "and 35 more" in told
    assert "a\\|'" in told
    assert "No parameter was searched." in trial_note("first", "0001", TrialProgress({}), LOSS)


def test_a_command_that_is_longer_than_a_databases_column_is_cut_and_leaves_the_description_whole(uri: str) -> None:
    command = f"python -m sweeps run conf=digits 'search.points=[{', '.join(['{train.lr: 0.1}'] * 1000)}]'"
    recorder = open_recorder(uri, command=command)
    first = load_sweep(uri, "digits-1").tags
    assert not recorder.close("finished")
    last = load_sweep(uri, "digits-1").tags
    for tags in (first, last):
        assert max(map(len, tags.values())) <= 8000
        assert tags["sweeps.command"] == command[: len(tags["sweeps.command"])]
        assert "[Their charts](" in tags["mlflow.note.content"]
    assert last["mlflow.note.content"].endswith("python -m sweeps best digits-1\n```")


def test_a_description_has_the_first_trials_of_a_large_pareto_front() -> None:
    front = [trial_record(number, 0.5, values=(0.5, 0.25)) for number in range(900)]
    told = note(sweep_record(metrics=("loss", "size"), modes=("min", "min"), front=front), "finished")
    assert len(told) < 4000
    assert "Pareto front of 900 trials:" in told
    assert "| 0049 | 0.5 | 0.25 |\n| and 850 more |" in told
    assert told.endswith("python -m sweeps best s\n```")


def test_texts_and_infinite_values_of_the_best_trial_break_no_table_of_a_sweep(uri: str) -> None:
    recorder = open_recorder(uri)
    params = {"model.gates": "relu|gelu", "train.clip": math.inf, "model.prompt": "p" * 9000}
    recorder.trials.start("0000", params, "", 1)
    recorder.trials.log("0000", 10, {"eval/loss": 0.5})
    recorder.trials.end("0000", "finished", 10, 1)
    recorder.trials.start("0001", params, "", 1)
    recorder.trials.end("0001", "failed", 10, 1, "TypeError: unsupported operand type(s) for |: 'int' and 'str'")
    recorder.update({"finished": 1}, [("0000", (0.5,), params)], {"wall_s": 1.0})
    assert not recorder.close("finished")
    told = load_sweep(uri, "digits-1").tags["mlflow.note.content"]
    assert '| `model.gates` | "relu\\|gelu" |' in told
    assert told.endswith("python -m sweeps best digits-1\n```")  # not cut off
    assert "Error: `TypeError: unsupported operand type(s) for |: " in notes(uri)["0001"]
    ids = load_sweep(uri, "digits-1").mlflow
    artifacts = MlflowClient(uri).get_run(ids.run_id).info.artifact_uri
    table = json.loads(load_text(f"{artifacts}/trials.json"), parse_constant=refused)
    assert table["data"][0][table["columns"].index("train.clip")] == "Infinity"


def refused(constant: str) -> None:
    """A browser cannot read this as JSON."""
    raise ValueError(constant)


def test_the_description_costs_no_call_of_its_own(uri_of_untried_tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("search_runs", "create_run", "log_batch", "set_tag", "set_terminated", "update_run"):
        plain = getattr(MlflowClient, name)

        def counted(self: Any, *args: Any, _plain: Any = plain, _name: str = name, **options: Any) -> Any:
            calls.append(_name)
            return _plain(self, *args, **options)

        monkeypatch.setattr(MlflowClient, name, counted)
    recorder = open_recorder(uri_of_untried_tables)
    calls.clear()
    recorder.trials.start("0000", POINT, "", 1)
    assert recorder._delivery.flush()
    # Nobody looks for the run of a new sweep. It is created with the description; its parameters are the batch.
    assert calls == ["create_run", "log_batch"]
    calls.clear()
    recorder.trials.end("0000", "finished", 30, 1)
    assert recorder._delivery.flush()
    assert calls == ["log_batch", "set_terminated"]
    recorder.close("finished")


# --- addresses ------------------------------------------------------------------------------------------------------


def query_of(page: str) -> dict[str, str]:
    """Values in an address after the ``#``."""
    return dict(parse_qsl(page.partition("?")[2]))


def test_the_address_of_a_sweep_finds_its_trials_the_best_by_their_best_value_first(uri: str) -> None:
    record_small_sweep(uri, "digits-2")
    recorder = open_recorder(uri)
    for trial, losses in {"0": (0.1, 0.9), "1": (0.5, 0.4), "2": (0.8, 0.2)}.items():
        recorder.trials.start(trial, POINT, CONFIG, 1)
        for step, loss in enumerate(losses):
            recorder.trials.log(trial, step, {"eval/loss": loss})
        recorder.trials.end(trial, "finished", 2, 1)
    recorder.close("finished")
    record = load_sweep(uri, "digits-1")
    query = query_of(trials_page(record.mlflow.experiment_id, "digits-1", "eval/loss", "min"))
    order = f"{query['orderByKey']} {'ASC' if query['orderByAsc'] == 'true' else 'DESC'}"
    runs = MlflowClient(uri).search_runs([record.mlflow.experiment_id], query["searchFilter"], order_by=[order])
    trials = {trial.run_id: trial.trial for trial in record.trials}
    assert [trials[run.info.run_id] for run in runs] == ["0", "2", "1"]
    assert fetch_metric_names(uri, list(trials)) == {"eval/loss"}


def test_the_installed_mlflow_reads_its_addresses_as_they_are_written() -> None:
    scripts = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in scripts.glob("*.js"))
    (facets,) = re.findall(r'\["searchFilter","orderByKey"[^]]*\]', text)
    query = query_of(trials_page("1", "digits-1", "eval/loss", "min", charts=True))
    elsewhere = query.keys() - {*json.loads(facets)}
    assert elsewhere == {"workflowType", "compareRunsMode"}
    assert all(f'"{name}"' in text for name in elsewhere)


@pytest.mark.slow
def test_the_links_open_the_trials_and_their_charts_in_a_browser(server: Server) -> None:
    from playwright.sync_api import expect, sync_playwright

    program = chromium()
    record_small_sweep(server.uri)
    number = load_sweep(server.uri, "digits-1").mlflow.experiment_id
    which = number, "digits-1", "eval/loss", "min"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1900, "height": 1000})
        page.set_default_timeout(90_000)
        expect.set_options(timeout=90_000)
        page.goto(f"{server.uri}/{trials_page(*which)}")
        expect(page.get_by_text("4 matching runs")).to_be_visible()
        page.goto("about:blank")
        page.goto(f"{server.uri}/{trials_page(*which, charts=True)}")
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        page.goto("about:blank")
        page.goto(f"{server.uri}/{experiment_page(number)}")
        expect(page.get_by_role("link", name="digits-1", exact=True)).to_be_visible()
        browser.close()
