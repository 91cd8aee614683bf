"""Sweeps from end to end: real Ray, real MLflow, two gloo workers a trial, through the command line."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
import yaml
from mlflow import artifacts
from processes import outputs
from running import NO_PREFLIGHT, SHORT, Done, run, start
from verbs import refusal

from sweeps.cli import run_command
from sweeps.tracking.reader import load_sweep
from sweeps_train import load_model


def test_a_sweep_ends_with_the_documents_promised_keys(digits: Done) -> None:
    document = digits.document
    assert digits.status == 0
    assert set(document) == {"sweep", "status", "metric", "mode", "counts", "best", "mlflow", "trials", "time"}
    assert (document["sweep"], document["status"], document["metric"]) == ("first", "finished", "eval/accuracy")
    assert set(document["counts"]) == {"finished", "pruned", "failed", "running", "stopped"}
    assert sum(document["counts"].values()) == len(document["trials"]) == 4
    assert set(document["trials"][0]) == {"trial", "state", "value", "params", "run_id", "steps", "attempts"}
    assert set(document["best"]) == {"trial", "value", "params", "run_id", "checkpoint"}
    assert 0 < document["time"]["goodput"] <= 1
    assert document["time"]["train_s"] < document["time"]["wall_s"]


def test_the_time_of_the_workers_is_accounted_for(digits: Done) -> None:
    time = digits.document["time"]
    account = time["account"]
    assert account["training"] / sum(account.values()) == pytest.approx(time["goodput"], abs=1e-3)
    assert sum(account.values()) == pytest.approx(2 * time["wall_s"], rel=0.05)  # of two workers, in one place
    assert all(account[part] > 0 for part in ("training", "start", "data_wait", "checkpoint", "evaluation", "waiting"))
    assert account["lost"] == 0
    for trial in digits.trials():
        shares = {name: share for name, share in trial.data.metrics.items() if name.startswith("time/")}
        assert shares["time/goodput"] > 0
        assert sum(shares.values()) == pytest.approx(1)
    assert digits.parent().data.metrics["time/goodput"] == pytest.approx(time["goodput"], abs=0.05)


def test_a_sweep_that_has_ended_has_its_report_in_its_folder_and_in_mlflow(digits: Done) -> None:
    assert (digits.folder / "outputs" / "first" / "report" / "report.html").is_file()
    attached = {file.path for file in digits.client.list_artifacts(digits.document["mlflow"]["run_id"], "report")}
    assert {"report/report.html", "report/learning_curves.png", "report/timeline.png"} <= attached


def test_it_is_recorded_when_and_on_which_workers_each_trial_trained(digits: Done) -> None:
    trials = load_sweep(digits.store, "first").trials
    assert all(trial.spans for trial in trials)  # a trial that was paused has several
    spans = sorted((span for trial in trials for span in trial.spans), key=lambda span: span.held)
    assert all(len(span.workers) == 2 and span.ended and span.held <= span.trained < span.ended for span in spans)
    starting = [span.trained - span.held for span in spans]
    assert max(starting[1:]) < starting[0]  # the later ones found the workers warm


def test_the_default_configuration_is_the_first_trial_and_the_search_stops_some(digits: Done) -> None:
    first = digits.document["trials"][0]
    assert first["params"]["train.lr"] == 0.001
    assert first["params"]["model"] == "conv_net"
    assert first["state"] == "finished"
    assert digits.document["counts"]["pruned"] >= 1
    pruned = [trial for trial in digits.document["trials"] if trial["state"] == "pruned"]
    assert all(trial["steps"] < 40 for trial in pruned)


def test_a_pruned_trial_saves_no_checkpoint_beyond_its_reports(digits: Done) -> None:
    trials = digits.folder / "outputs" / "first" / "trials"
    for trial in digits.document["trials"]:
        saved = {int(path.name.removeprefix("step-")) for path in (trials / trial["trial"]).glob("step-*")}
        assert saved  # its best and its last
        assert saved <= {10, 20, 30, 40}  # a stop that saves would do it at a record between them, too


@pytest.mark.slow
def test_of_several_objectives_the_front_is_the_result(tmp_path: Path) -> None:
    objectives = ("search.metric=[eval/accuracy, train/samples_per_second]", "search.mode=[max, max]")
    sampler = ("search/sampler=nsga2", "search.sampler.population=2", "search/scheduler=none")
    limits = "search.limits={eval/loss: {max: 1e9}}"
    by_reference = "tracking.checkpoints=reference"
    done = run(tmp_path, "conf=digits", *SHORT, *objectives, *sampler, limits, "search.num_trials=3", by_reference)
    assert done.status == 0
    values = {trial["trial"]: trial["value"] for trial in done.document["trials"]}
    assert all(len(value) == 2 for value in values.values())
    front = [best["trial"] for best in done.document["best"]]
    expected = {
        trial
        for trial, value in values.items()
        if not any(other != value and all(map(float.__ge__, other, value)) for other in values.values())
    }
    assert set(front) == expected
    assert {run.data.tags["sweeps.trial"] for run in done.trials() if "sweeps.pareto" in run.data.tags} == expected
    check_references(done)


def check_references(done: Done) -> None:
    """With ``tracking.checkpoints=reference`` nothing is copied, and what is named can be loaded."""
    for best in done.document["best"]:
        assert best["checkpoint"].startswith((done.folder / "outputs").as_uri())
        assert load_model(artifacts.download_artifacts(artifact_uri=best["checkpoint"]))
    for run_ in done.trials():
        assert set(run_.data.tags) >= {"sweeps.checkpoint.best", "sweeps.checkpoint.last"}
        assert [item.path for item in done.client.list_artifacts(run_.info.run_id)] == ["config.yaml", "logs"]


@pytest.mark.slow
@pytest.mark.timeout(300)  # a sweep, and a replay of it
def test_a_sweep_for_two_objectives_finishes_trials_of_a_front_and_is_replayed_alike(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *("conf=digits", "search=sweeps", "search.metric=[eval/loss,train/loss]", "search.mode=[min,min]"),
        *("search.num_trials=12", "scaling=single_worker", "cluster.num_cpus=2", NO_PREFLIGHT, "--name=two"),
        *("train.max_steps=80", "train.eval_every=10"),
    )
    states = [each["state"] for each in done.document["trials"]]
    assert set(states) == {"finished", "pruned"}, done.err
    said, _ = outputs(start(tmp_path, "replay", "two"), 100)
    assert "11 suggestions" in said  # and the first one, of the config's own values
    assert "repeated: all are the same" in said


def test_the_best_value_is_the_best_that_any_trial_reported(digits: Done) -> None:
    values = []
    for trial in digits.trials():
        history = digits.client.get_metric_history(trial.info.run_id, "eval/accuracy")
        values.append(max(point.value for point in history))
    assert digits.document["best"]["value"] == max(values)
    assert [trial["value"] for trial in digits.document["trials"]] == values


def test_mlflow_has_a_parent_with_one_nested_run_for_each_trial(digits: Done) -> None:
    parent = digits.parent()
    assert parent.info.run_name == "first"
    assert parent.info.status == "FINISHED"
    tags = parent.data.tags
    assert (tags["sweeps.kind"], tags["sweeps.conf"], tags["sweeps.state"]) == ("sweep", "digits", "finished")
    assert tags.get("sweeps.dashboard", "") == ""  # a cluster started for a sweep has none
    assert tags["sweeps.best.trial"] == digits.document["best"]["trial"]
    assert f"best.{next(iter(digits.document['best']['params']))}" in tags
    assert "Best: trial" in tags["mlflow.note.content"]
    assert len(digits.trials()) == 4


def test_every_sampled_parameter_is_an_mlflow_parameter_under_its_path(digits: Done) -> None:
    for run_, trial in zip(digits.trials(), digits.document["trials"], strict=True):
        assert set(run_.data.params) == set(trial["params"])
        assert float(run_.data.params["train.lr"]) == trial["params"]["train.lr"]
        tags = run_.data.tags
        assert (tags["sweeps.sweep"], tags["sweeps.conf"], tags["sweeps.attempt"]) == ("first", "digits", "1")
        assert tags["sweeps.state"] == trial["state"]
        assert "lr=" in run_.info.run_name or "model=" in run_.info.run_name


def test_every_metric_is_recorded_at_its_step_once_and_none_of_rays_own(digits: Done) -> None:
    finished = digits.trials()[0]
    steps = {
        name: [point.step for point in digits.client.get_metric_history(finished.info.run_id, name)]
        for name in finished.data.metrics
    }
    assert sorted(steps["eval/accuracy"]) == sorted(steps["eval/loss"]) == [10, 20, 30, 40]
    assert sorted(steps["train/loss"]) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert {"train/lr", "train/samples_per_second", "train/num_workers", "system/memory_mib"} <= set(steps)
    assert finished.data.metrics["train/num_workers"] == 2
    assert all(name.split("/")[0] in {"train", "eval", "system", "time", "best"} for name in steps)


def test_each_run_holds_its_own_whole_config(digits: Done) -> None:
    for run_, trial in zip(digits.trials(), digits.document["trials"], strict=True):
        text = Path(artifacts.download_artifacts(f"{run_.info.artifact_uri}/config.yaml")).read_text(encoding="utf-8")
        config = yaml.safe_load(text)
        assert config["train"]["lr"] == trial["params"]["train.lr"]
        assert config["train"]["max_steps"] == 40


def test_the_parent_holds_a_table_of_all_trials(digits: Done) -> None:
    path = artifacts.download_artifacts(f"{digits.parent().info.artifact_uri}/trials.json")
    table = json.loads(Path(path).read_text(encoding="utf-8"))
    assert len(table["data"]) == 4
    assert {"trial", "state", "eval/accuracy", "train.lr"} <= set(table["columns"])


def test_the_best_model_loads_from_mlflow_alone(digits: Done) -> None:
    import torch

    folder = artifacts.download_artifacts(digits.document["best"]["checkpoint"], tracking_uri=digits.store)
    logits = load_model(folder)(torch.zeros(3, 1, 8, 8))
    assert logits.shape == (3, 10)


def test_every_trial_keeps_its_best_and_its_last_checkpoint(digits: Done) -> None:
    for run_ in digits.trials():
        names = {item.path for item in digits.client.list_artifacts(run_.info.run_id, "checkpoints")}
        assert names == {"checkpoints/best", "checkpoints/last"}


@pytest.mark.slow
def test_trials_that_are_pruned_between_quick_evaluations_keep_their_checkpoints_too(tmp_path: Path) -> None:
    quick = ("train.max_steps=160", "train.eval_every=2", "train.log_every=2", "search.scheduler.grace=4")
    space = ("space=none", "train.lr=tag(log, interval(1e-5, 1e-1))", "search.num_trials=10")
    done = run(tmp_path, "conf=digits", *quick, *space, "--name=quick")
    assert done.document["counts"]["pruned"] > 3
    for run_ in done.trials():
        names = {item.path for item in done.client.list_artifacts(run_.info.run_id, "checkpoints")}
        assert names == {"checkpoints/best", "checkpoints/last"}
    assert "was gone" not in done.err
    assert not list((tmp_path / "outputs").rglob("uploads"))


def test_the_study_was_told_what_happened(digits: Done) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend(str(digits.folder / "outputs" / "first" / "optuna.log")))
    study = optuna.load_study(study_name="first", storage=storage)
    expected = {"finished": "COMPLETE", "pruned": "PRUNED"}
    for told, trial in zip(study.trials, digits.document["trials"], strict=True):
        assert told.state.name == expected[trial["state"]]
        assert 0 < max(told.intermediate_values) <= trial["steps"]  # a pruned one goes on to its next boundary
        if trial["state"] == "finished":
            assert told.value == trial["value"]


def test_progress_is_one_plain_line_an_event_and_nothing_else(digits: Done) -> None:
    lines = digits.err.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d (first: |\[\d/4\] )", line) for line in lines), digits.err
    assert sum("4 trials, max of eval/accuracy; 2 workers of 1 CPU" in line for line in lines) == 1
    assert sum(re.search(r"trial \d{4} started", line) is not None for line in lines) == 4


def test_list_show_and_best_read_the_sweep_from_mlflow(digits: Done, capsys: pytest.CaptureFixture[str]) -> None:
    process = start(digits.folder, "show", "first", "--json")
    printed, err = outputs(process, 60)
    assert (process.returncode, err) == (0, "")
    assert json.loads(printed) == digits.document

    def shown(*arguments: str) -> str:
        with contextlib.chdir(digits.folder):
            assert run_command([*arguments])[0] == 0
        return capsys.readouterr().out

    assert json.loads(shown("best", "first", "--json")) == digits.document["best"]
    assert json.loads(shown("list", "--json"))[0]["sweep"] == "first"
    assert "first" in shown("list")
    assert "pruned" in shown("show", "first")
    assert digits.document["best"]["run_id"] in shown("best", "first")


def test_a_name_that_is_taken_is_refused(digits: Done, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.chdir(digits.folder):
        message = refusal("run", "conf=digits", "--name=first", "output_dir=elsewhere")
    assert "a sweep named 'first' already exists" in str(message)
    assert "Ray" not in capsys.readouterr().err  # has not been started
    assert not (digits.folder / "elsewhere" / "first").exists()
