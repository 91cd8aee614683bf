"""MLflow's pages of a sweep: descriptions of runs, and the views with which links open the runs page."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from chromium import chromium
from recording import CONFIG, POINT, Server, open_recorder, record_small_sweep

from sweeps.compat.mlflow import SAVED_VIEW_PREFIX
from sweeps.config.objectives import Objectives
from sweeps.tracking import saved_views
from sweeps.tracking.metric_history import fetch_metric_names
from sweeps.tracking.mlflow_pages import all_sweeps_page, run_page, trials_page
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.saved_views import save_missing_views
from sweeps.tracking.trial_note import trial_note
from sweeps.tracking.trial_progress import TrialProgress

LOSS = Objectives(("eval/loss",), ("min",))


def notes(uri: str, sweep: str = "digits-1") -> dict[str, str]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    trials = load_sweep(uri, sweep).trials
    return {trial.trial: client.get_run(trial.run_id).data.tags["mlflow.note.content"] for trial in trials}


def views(uri: str) -> dict[str, Any]:
    """Name and state of each saved view, by its id."""
    from mlflow import MlflowClient

    (experiment,) = [each for each in MlflowClient(uri).search_experiments() if each.name != "Default"]
    found = {}
    for tag, text in experiment.tags.items():
        if tag.startswith(SAVED_VIEW_PREFIX):
            view = json.loads(text)
            packed = base64.b64decode(view["state"].removeprefix("deflate;"))
            found[tag.removeprefix(SAVED_VIEW_PREFIX)] = (view["name"], json.loads(zlib.decompress(packed)))
    return found


# --- descriptions ---------------------------------------------------------------------------------------------------


def test_a_trial_says_how_it_ended_with_which_values_and_what_to_type(uri: str) -> None:
    record_small_sweep(uri)
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


def test_the_description_costs_no_call_of_its_own(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    calls: list[str] = []
    for name in ("create_run", "log_batch", "set_tag", "set_terminated", "update_run"):
        plain = getattr(mlflow.MlflowClient, name)

        def counted(self: Any, *args: Any, _plain: Any = plain, _name: str = name, **options: Any) -> Any:
            calls.append(_name)
            return _plain(self, *args, **options)

        monkeypatch.setattr(mlflow.MlflowClient, name, counted)
    recorder = open_recorder(uri)
    calls.clear()
    recorder.trials.start("0000", POINT, "", 1)
    assert recorder._delivery.flush()
    # The run is created with it; its parameters are the batch.
    assert calls == ["create_run", "log_batch"]
    calls.clear()
    recorder.trials.end("0000", "finished", 30, 1)
    assert recorder._delivery.flush()
    assert calls == ["log_batch", "set_terminated"]
    recorder.close("finished")


# --- views ----------------------------------------------------------------------------------------------------------


def test_a_sweep_has_a_view_of_its_trials_and_its_experiment_one_of_all(uri: str) -> None:
    record_small_sweep(uri)
    found = views(uri)
    assert found.keys() == {"sweeps-digits-1", "sweeps"}
    name, state = found["sweeps-digits-1"]
    assert name == "Trials of digits-1"
    assert "`sweeps.sweep` = 'digits-1'" in state["searchFilter"]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`best/eval/loss`", True)
    assert {"tags.`sweeps.state`", "metrics.`eval/loss`", *(f"params.`{path}`" for path in POINT)} <= set(
        state["selectedColumns"]
    )
    assert "duration" in state["columnOrder"]
    parallel, curve = state["compareRunCharts"][:2]
    assert (parallel["selectedParams"], parallel["selectedMetrics"]) == (list(POINT), ["best/eval/loss"])
    assert (curve["metricKey"], curve["xAxisKey"]) == ("eval/loss", "step")
    assert state["groupBy"] is None
    assert found["sweeps"][1]["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "sweeps.sweep"}]


def test_mlflow_sorts_trials_by_their_best_value_and_not_by_the_last(uri: str) -> None:
    from mlflow import MlflowClient

    recorder = open_recorder(uri)
    for trial, losses in {"0": (0.1, 0.9), "1": (0.5, 0.4), "2": (0.8, 0.2)}.items():
        recorder.trials.start(trial, POINT, CONFIG, 1)
        for step, loss in enumerate(losses):
            recorder.trials.log(trial, step, {"eval/loss": loss})
        recorder.trials.end(trial, "finished", 2, 1)
    recorder.close("finished")
    record, state = load_sweep(uri, "digits-1"), views(uri)["sweeps-digits-1"][1]
    order = f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"
    runs = MlflowClient(uri).search_runs([record.mlflow.experiment_id], state["searchFilter"], order_by=[order])
    trials = {trial.run_id: trial.trial for trial in record.trials}
    assert [trials[run.info.run_id] for run in runs] == ["0", "2", "1"]
    assert fetch_metric_names(uri, list(trials)) == {"eval/loss"}


def test_the_conditions_of_the_views_find_the_trials(uri: str) -> None:
    from mlflow import MlflowClient

    record_small_sweep(uri)
    record_small_sweep(uri, "digits-2")
    number, client = load_sweep(uri, "digits-1").mlflow.experiment_id, MlflowClient(uri)
    of_one, of_all = (views(uri)[view][1]["searchFilter"] for view in ("sweeps-digits-1", "sweeps"))
    assert len(client.search_runs([number], of_one)) == 4
    assert len(client.search_runs([number], of_all)) == 8


def test_old_views_make_room_and_come_back_when_they_are_asked_for(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MOST_VIEWS", 2)
    for name in ("a", "b", "c"):
        open_recorder(uri, name).close("finished")
    assert views(uri).keys() == {"sweeps-b", "sweeps-c", "sweeps"}
    save_missing_views(load_sweep(uri, "a"))
    assert views(uri).keys() == {"sweeps-a", "sweeps-c", "sweeps"}


def test_descriptions_and_the_experiment_lead_to_the_views(uri: str) -> None:
    from mlflow import MlflowClient

    record_small_sweep(uri)
    sweep, client = load_sweep(uri, "digits-1"), MlflowClient(uri)
    number = sweep.mlflow.experiment_id
    told = sweep.tags["mlflow.note.content"]
    assert f"({trials_page(number, 'digits-1')})" in told
    assert f"({trials_page(number, 'digits-1', charts=True)})" in told
    experiment = client.get_experiment(number)
    assert "**Views**" in experiment.tags["mlflow.note.content"]
    assert run_page(sweep.mlflow).startswith(f"#/experiments/{number}/runs/{sweep.mlflow.run_id}?")


@pytest.mark.slow
def test_the_links_open_the_columns_and_charts_in_a_browser(server: Server) -> None:
    from playwright.sync_api import expect, sync_playwright

    program = chromium()
    record_small_sweep(server.uri)
    number = load_sweep(server.uri, "digits-1").mlflow.experiment_id
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1900, "height": 1000})
        page.set_default_timeout(90_000)
        expect.set_options(timeout=90_000)
        page.goto(f"{server.uri}/{trials_page(number, 'digits-1')}")
        for column in ("Duration", "sweeps.state", "eval/loss", *POINT):
            expect(page.get_by_role("columnheader", name=column, exact=True).first).to_be_attached()
        expect(page.get_by_text("4 matching runs")).to_be_visible()
        page.goto("about:blank")
        page.goto(f"{server.uri}/{trials_page(number, 'digits-1', charts=True)}")
        expect(page.get_by_text("Parallel Coordinates")).to_be_visible()
        expect(page.locator(".js-plotly-plot").first).to_be_visible()
        page.goto("about:blank")
        page.goto(f"{server.uri}/{all_sweeps_page(number)}")
        expect(page.get_by_text("Group: digits-1")).to_be_visible()
        browser.close()
