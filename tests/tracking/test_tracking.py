"""A sweep in MLflow: its runs, metrics, parameters, tags and documents."""

from __future__ import annotations

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import CHECKOUT
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from omegaconf import OmegaConf
from recording import (
    COMMAND,
    CONFIG,
    POINT,
    copy_small_sweeps,
    history,
    one_trial,
    open_recorder,
    record_small_sweep,
    record_with_checkpoints,
)
from rich.console import Console
from stores import make_store

from sweeps import constants
from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit
from sweeps.driver.reproduce import Reproduction, compare, is_reproduced
from sweeps.errors import ArtifactsUnreachable, UserError
from sweeps.plan.export import alone, exported, write_export
from sweeps.registry.best_checkpoint import fetch_checkpoint, weights_note
from sweeps.report.comparison import compare_sweeps
from sweeps.report.notebook_html import sweep_html, sweep_text
from sweeps.report.terminal_tables import print_best, print_outcome, print_sweep
from sweeps.report.trial_details import print_trial, trial_document
from sweeps.report.watch import changes
from sweeps.service.notify.message import of_sweep
from sweeps.tracking import outbox
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.journal import Journal, NewRun, Points, Tags
from sweeps.tracking.metric_history import fetch_histories, fetch_metric_names
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.record import MlflowIds
from sweeps.tracking.retry import Retrier
from sweeps.tracking.store import fetch_runs, fetch_tags
from sweeps.tracking.trial_history import Span, Weights
from sweeps.tracking.uris import sqlite_path
from sweeps.warm_start.earlier_trials import config_lookup


def test_every_metric_is_at_its_step_exactly_once(uri_of_untried_tables: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = uri_of_untried_tables
    monkeypatch.setattr(outbox, "POINTS_PER_CALL", 100)  # so that it takes several calls
    with one_trial(uri) as recorder:
        for step in range(1, 151):
            recorder.trials.log("0", step, {"eval/loss": 1 / step, "train/loss": float(step)}, step)
        recorder.trials.end("0", "finished", 150, 1)
    run_id = load_sweep(uri, "digits-1").trials[0].run_id
    assert history(uri, run_id, "eval/loss") == [(step, 1 / step) for step in range(1, 151)]
    assert history(uri, run_id, "train/loss") == [(step, float(step)) for step in range(1, 151)]


def test_steps_that_a_retry_reports_again_are_left_out(uri: str) -> None:
    with one_trial(uri) as recorder:
        for step in (10, 20, 30):
            recorder.trials.log("0", step, {"eval/loss": float(step)})
        recorder.trials.end("0", "failed", 30, 1, "RuntimeError: out of memory")
        recorder.trials.start("0", POINT, CONFIG, 2)
        for step in (20, 30, 40):
            recorder.trials.log("0", step, {"eval/loss": step / 40, "late": 1.0})
        recorder.trials.end("0", "finished", 40, 2)
    sweep = load_sweep(uri, "digits-1")
    assert history(uri, sweep.trials[0].run_id, "eval/loss") == [(10, 10), (20, 20), (30, 30), (40, 1)]
    assert (sweep.trials[0].value, sweep.trials[0].best_step) == (1, 40), "of what is recorded"
    assert history(uri, sweep.trials[0].run_id, "late") == [(20, 1), (30, 1), (40, 1)]
    assert [(trial.state, trial.attempts, trial.error) for trial in sweep.trials] == [("finished", 2, None)]


def test_what_does_not_compete_is_recorded_and_is_no_result_of_the_trial(uri: str) -> None:
    with one_trial(uri, objectives=Objectives(("eval/loss",), ("min",), {"eval/loss": Limit(min=0.1)})) as recorder:
        recorder.trials.log("0", 0, {"eval/loss": 0.01}, competes=False)
        recorder.trials.log("0", 10, {"eval/loss": 0.5})
        recorder.trials.log("0", 20, {"eval/loss": 0.2}, competes=False)
        recorder.trials.end("0", "finished", 20, 1)
    trial = load_sweep(uri, "digits-1").trials[0]
    assert (trial.value, trial.best_step, trial.steps, trial.violation) == (0.5, 10, 20, None)
    assert history(uri, trial.run_id, "eval/loss") == [(0, 0.01), (10, 0.5), (20, 0.2)]


def test_names_and_values_that_mlflow_cannot_hold_survive_whole(uri: str) -> None:
    point = {
        "betas[0]": 0.9,
        "a,b": 1,
        "*": "x",
        "p" * 260: 2,
        "p" * 261: 3,
        "long": "y" * 20_000,
        "texts": ["z"] * 4000,
    }
    values = {"recall@5": 1.0, "recall_5": 2.0, "m" * 260: 3.0, "m" * 261: 4.0, "a//b": 5.0, "a/b": 6.0, "": 7.0}
    recorder = open_recorder(uri, objectives=Objectives(("[loss]",), ("min",)))
    recorder.trials.start("0", point, CONFIG, 1)
    recorder.trials.log("0", 1, {"[loss]": 0.5, **values})
    recorder.trials.record_exploit("0", 1, 1, {"betas[0]": 0.8, "*": "y"})
    recorder.trials.end("0", "finished", 1, 1)
    recorder.update({"finished": 1}, [("0", (0.5,), point)], {"wall_s": 1})
    assert not recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    assert sweep.metrics == ("[loss]",)
    assert sweep.best is not None
    assert (sweep.best.params, sweep.best.value) == (point, 0.5)
    found = {name: fetch_histories(uri, [sweep.best.run_id], name) for name in values}
    assert {name: history[sweep.best.run_id][0].value for name, history in found.items()} == values
    names = fetch_metric_names(uri, [sweep.best.run_id])
    assert {name for name in names if len(name) < 200} == {
        *(name for name in values if len(name) < 200),
        *("[loss]", "param/betas[0]"),
    }
    tags = fetch_tags(MlflowClient(uri), sweep.mlflow.run_id)
    assert tags["best.betas_x005B_0_x005D_"] == "0.9"
    no_plan: Any = None
    for trial in (sweep.best, None):
        again = compare(Reproduction(sweep, trial, no_plan, None), sweep)
        assert is_reproduced(again)
        assert {each.metric: each.equal for each in again if each.counts} == {"[loss]": True}


def test_texts_with_bytes_that_are_no_characters_do_not_hold_up_the_record(uri: str) -> None:
    """As in the name of a file that is not UTF-8, or in one half of an emoji; PostgreSQL refuses a NUL, too."""
    text = "caf\udce9\0.txt"
    recorder = open_recorder(uri, command=f"python -m sweeps run conf=digits data.path={text}")
    recorder.trials.start("0", {"data.path": text}, f"data:\n  path: {text}\n", 1)
    recorder.trials.log("0", 1, {"eval/loss": 1.0})
    recorder.trials.end("0", "failed", 1, 1, f"FileNotFoundError: {text}")
    assert not recorder.close("failed", patience_s=3)
    sweep = load_sweep(uri, "digits-1")
    (trial,) = sweep.trials
    assert (trial.state, trial.value, trial.params) == ("failed", 1.0, {"data.path": text})
    assert trial.error == "FileNotFoundError: caf\ufffd\ufffd.txt"
    assert sweep.command.endswith("data.path=caf\ufffd\ufffd.txt")
    assert read_text(uri, trial.run_id, "config.yaml") == "data:\n  path: caf\ufffd\ufffd.txt\n"


def test_a_parameter_that_mlflow_refuses_leaves_the_others(uri: str, tmp_path: Path) -> None:
    make_store(sqlite_path(uri))
    client = MlflowClient(uri)
    experiment = client.create_experiment("digits")
    run_id = client.create_run(experiment).info.run_id
    client.log_param(run_id, "b", "another")  # MLflow refuses to change it
    ids = MlflowIds(tracking_uri=uri, experiment_id=experiment, run_id=run_id)
    delivered = Outbox(client, Retrier(uri, "writing"), Journal(tmp_path), ids, beat=lambda: None)
    delivered.put(NewRun("0", experiment, "0", {}, dict.fromkeys("abcde", "1"), 0, {}))
    delivered.put(Points("0", 1, 0, {"loss": 0.5}))
    delivered.adopt({"0": run_id})
    assert delivered.deliver()
    data = client.get_run(run_id).data
    assert (data.params, data.metrics) == ({**dict.fromkeys("abcde", "1"), "b": "another"}, {"loss": 0.5})


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("gs://bucket/art", "No module named"),
        pytest.param("s3://bucket/art", "Unable to locate credentials", marks=pytest.mark.slow),
    ],
)
def test_a_store_of_artifacts_that_does_not_answer_this_machine_is_named_and_what_needs_none_goes_on(
    place: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uri = copy_small_sweeps(tmp_path)
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("UPDATE runs SET artifact_uri = ? || run_uuid", (f"{place}/",))
    sweep, other = load_sweep(uri, "digits-1"), load_sweep(uri, "digits-2")
    trial = replace(sweep.trials[0], checkpoint=f"runs:/{sweep.trials[0].run_id}/checkpoints/best")
    reads: list[Callable[[], object]] = [
        lambda: exported(sweep, trial, Path("best.yaml")),
        lambda: config_lookup(uri, sweep),
        lambda: fetch_checkpoint(sweep, trial, tmp_path / "there"),
    ]
    for read in reads:
        with pytest.raises(ArtifactsUnreachable, match=rf"the artifacts in {place}/\w+ cannot be read: {why}.*\[s3\]"):
            read()

    assert [each.config for each in compare_sweeps([sweep, other]).sweeps] == [None, None]
    assert trial_document(sweep, trial)["logs"] == {}
    assert caplog.text.count(why) == 3, "of both sweeps and the trial"


def test_artifacts_of_a_project_that_was_moved_are_said_to_be_where_they_were_and_are_read_after_the_correction(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    record_small_sweep(f"sqlite:///{old}/mlflow.db")
    old.rename(new)
    uri = f"sqlite:///{new}/mlflow.db"
    sweep = load_sweep(uri, "digits-1")
    for _ in range(2):
        with pytest.raises(UserError, match=r"no config.yaml that can be read here"):
            exported(sweep, sweep.trials[0], Path("best.yaml"))
    assert caplog.text.count(f"are recorded in {old}/mlruns/digits, which is not on this machine") == 1

    page = CHECKOUT.joinpath("docs", "troubleshooting.md").read_text(encoding="utf-8")
    with sqlite3.connect(new / "mlflow.db") as database:
        for command in re.findall(r'sqlite3 mlflow.db "(UPDATE [^"]*)"', page):
            database.execute(command.replace("/old/project", str(old)).replace("/new/project", str(new)))
    assert read_text(uri, sweep.mlflow.run_id, "config.yaml") == CONFIG


def test_two_sweeps_that_start_at_the_same_moment_share_a_new_experiment(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(sqlite_path(uri))
    look, others = MlflowClient.get_experiment_by_name, []

    def look_first(client: MlflowClient, name: str) -> object:
        found = look(client, name)
        if not others:  # the other sweep makes it after this one has looked
            others.append(client.create_experiment(name))
        return found

    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", look_first)
    recorder = open_recorder(uri, folder=tmp_path)
    recorder.close("finished")
    assert [recorder.ids.experiment_id] == others


def test_a_deleted_experiment_is_named_with_the_ways_out(uri: str) -> None:
    make_store(sqlite_path(uri))
    client = MlflowClient(uri)
    number = client.create_experiment("digits")
    client.delete_experiment(number)
    with pytest.raises(UserError, match=f"digits was deleted; restore it .*--experiment-id {number}.*another name"):
        open_recorder(uri, experiment="digits")


@pytest.mark.parametrize("place", ["file", pytest.param("server", marks=pytest.mark.slow), "removed from the file"])
def test_the_best_trial_is_known_after_its_run_is_deleted_in_mlflow(
    uri: str, place: str, request: pytest.FixtureRequest
) -> None:
    removed = place.startswith("removed")
    place = request.getfixturevalue("server").uri if place == "server" else uri
    record_with_checkpoints(place, "digits-1")
    before = load_sweep(place, "digits-1")
    assert before.best is not None
    for folder in Path("outputs/digits-1/trials").glob("*/step-*"):
        (folder / "metrics.json").write_text('{"eval/loss": 0.1}', encoding="utf-8")
    MlflowClient(place).delete_run(before.best.run_id)
    if removed:
        MlflowClient(place)._tracking_client.store._hard_delete_run(before.best.run_id)  # as `mlflow gc` does
    after = load_sweep(place, "digits-1")
    assert after.best is not None
    assert (after.best.trial, after.best.value, after.best.params) == ("0002", 0.1, {"train.lr": 0.1})
    assert [trial.trial for trial in after.trials] == ["0000", "0001", "0002", "0003"]
    assert fetch_checkpoint(after, after.best, Path("found")).is_dir()


@pytest.mark.parametrize("several", [False, True])
def test_the_best_trial_of_a_store_put_back_to_before_its_reports_has_the_value_that_the_sweep_recorded(
    uri: str, several: bool
) -> None:
    record_with_checkpoints(uri, "digits-1")
    before = load_sweep(uri, "digits-1")
    client, best = MlflowClient(uri), ["0002", "0001"] if several else ["0002"]
    for trial in best:
        client.delete_tag(before.trials[int(trial)].run_id, constants.TAG_VALUE)
    if several:
        client.set_tag(before.mlflow.run_id, constants.TAG_BEST_TRIAL, json.dumps(best))
    after = load_sweep(uri, "digits-1")
    assert [(each.trial, each.value) for each in after.front] == [("0002", 0.1)]


@pytest.mark.parametrize(
    ("store", "exported_as"),
    [
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
        ("sqlite:////shared/mlflow.db", "sqlite:////shared/mlflow.db"),
        ("postgresql://user:secret@host/runs", "sqlite:///mlflow.db"),
    ],
)
def test_an_export_names_a_store_of_ones_own_and_leaves_passwords_out(
    store: str, exported_as: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    record_small_sweep(uri, config=f"search: {{metric: eval/loss, mode: min}}\ntracking: {{uri: '{store}'}}\n")
    sweep = load_sweep(uri, "digits-1")
    assert OmegaConf.create(exported(sweep, sweep.trials[0], Path("best.yaml"))).tracking.uri == exported_as


def test_an_export_replaces_an_earlier_one_but_no_other_file_and_its_command_is_quoted(
    uri: str, tmp_path: Path
) -> None:
    record_small_sweep(uri, config="search: {metric: eval/loss, mode: min}\ntracking: {uri: x}\n")
    sweep, file = load_sweep(uri, "digits-1"), tmp_path / "my best.yaml"
    text = exported(sweep, sweep.trials[0], Path(file.name))
    assert "python -m sweeps run 'conf=my best.yaml'\n" in text
    file.touch()  # as mktemp does
    for _ in range(2):
        write_export(text, file)
    file.write_text("# My own sweep, with its space.\n")
    with pytest.raises(UserError, match=r"my best.yaml: exists, and is not an exported trial; choose another"):
        write_export(text, file)
    assert file.read_text() == "# My own sweep, with its space.\n"


def test_what_a_sweeps_config_holds_is_read_back_from_mlflow(uri: str) -> None:
    texts = {"revision": "7e10", "other": "1E-5", "pattern": "\\${HOME}", "name": "e5"}
    task = json.dumps({**texts, "arguments": {"model.lr": 0.1, "depth": 2}})
    search = "{metric: eval/loss, mode: min, value: last, num_trials: 4}"
    record_small_sweep(uri, config=f"name: s\nsearch: {search}\ntracking: {{uri: x}}\ntask: {task}\n")
    sweep = load_sweep(uri, "digits-1")
    assert alone(sweep, sweep.trials[0])["search"]["value"] == "last", "it is trained again so that its last one counts"

    read = OmegaConf.create(exported(sweep, sweep.trials[0], Path("best.yaml")))
    assert {name: read.task[name] for name in texts} == texts, "though they look like numbers or interpolations"

    lookup, names = config_lookup(uri, sweep)({}), ("model.lr", "depth", "model", "width")
    assert [lookup(f"task.arguments.{name}") for name in names] == [0.1, 2, None, None], "though its name has dots"

    resumed = replace(sweep.trials[0], started=1005.0, ended=91005.0)
    paused = replace(sweep, time=replace(sweep.time, sessions=((1000.0, 1010.0), (91000.0, 91010.0))))
    shown = Console(record=True, width=200, file=io.StringIO())
    print_trial(trial_document(paused, resumed), shown)
    assert ", took 10s" in shown.export_text(), "it took no time while its sweep paused"


def test_where_the_saved_weights_are_not_those_of_the_best_value_everything_says_so(uri: str, tmp_path: Path) -> None:
    with one_trial(uri, checkpoints="reference") as recorder:
        for step, loss in ((30, 0.3), (40, 0.5)):
            recorder.trials.log("0", step, {"eval/loss": loss})
        recorder.trials.record_checkpoint("0", str(tmp_path), "last", "best", weights=Weights(40, (0.5,)))
        recorder.trials.end("0", "finished", 40, 1)
        recorder.update({"finished": 1}, [("0", (0.3,), POINT)], {"wall_s": 1})
    sweep = load_sweep(uri, "digits-1")
    assert sweep.best is not None
    assert sweep.as_json()["best"]["weights"] == {"step": 40, "value": 0.5}
    assert weights_note(sweep, sweep.best) == (
        " Its weights are from step 40, with eval/loss 0.5; its best value is from step 30."
    )
    shown = Console(record=True, width=200, file=io.StringIO())
    print_best(sweep, shown)
    print_trial(trial_document(sweep, sweep.best), shown)
    text = shown.export_text()
    assert "of step 40, with eval/loss 0.5; the value above is of step 30" in text
    assert text.count("of step 40, with eval/loss 0.5") == 3
    for run_id in (sweep.mlflow.run_id, sweep.best.run_id):
        assert "step 40, with eval/loss 0.5" in fetch_tags(MlflowClient(uri), run_id)["mlflow.note.content"]
    same = replace(sweep.best, best_step=40, value=0.5)
    assert (same.other_weights, weights_note(sweep, same)) == (None, "")
    assert "weights" not in replace(sweep, front=[same]).as_json()["best"]


def test_a_resumed_sweep_goes_on_in_the_same_runs(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.log("0", 10, {"eval/loss": 1.0})
    recorder.update({"running": 1}, [("0", (1.0,), POINT)], {"wall_s": 1})
    recorder.close("interrupted")
    before = load_sweep(uri, "digits-1")

    recorder = open_recorder(uri, resume=True)
    recorder.trials.start("0", POINT, longer := f"{CONFIG}  max_steps: 20\n", 2)  # it was extended
    recorder.trials.log("0", 10, {"eval/loss": 3.0})
    recorder.trials.log("0", 20, {"eval/loss": 2.0})
    recorder.trials.start("1", {"train.lr": 0.5}, CONFIG, 1)
    recorder.update({"running": 2}, [("1", (0.5,), {"train.lr": 0.5})], {"wall_s": 1})
    recorder.close("finished")

    after = load_sweep(uri, "digits-1")
    assert after.mlflow == before.mlflow
    assert after.trials[0].run_id == before.trials[0].run_id
    assert len(after.trials) == 2
    assert history(uri, after.trials[0].run_id, "eval/loss") == [(10, 1.0), (20, 2.0)]
    assert after.trials[0].value == 1.0
    assert read_text(uri, after.trials[0].run_id, constants.CONFIG_ARTIFACT) == longer
    best = MlflowClient(uri).get_run(after.mlflow.run_id).data.metrics["best/eval/loss"]
    assert best == 0.5  # though as many trials had ended when the first session recorded 1.0
    # Tags of parameters that the new best trial does not have are gone.
    assert {key for key in after.tags if key.startswith("best.")} == {"best.train.lr"}


def test_runs_are_nested_and_carry_names_tags_parameters_and_configs(uri: str) -> None:
    from mlflow.artifacts import load_text

    record_small_sweep(uri)
    client, sweep = MlflowClient(uri), load_sweep(uri, "digits-1")
    parent = client.get_run(sweep.mlflow.run_id)
    assert parent.info.run_name == "digits-1"
    assert parent.info.status == "FINISHED"
    assert parent.data.tags["mlflow.user"]
    assert parent.data.tags["mlflow.source.name"] == "python -m sweeps"
    assert parent.data.tags[constants.TAG_COMMAND] == COMMAND
    assert parent.data.tags["best.train.lr"] == "0.001"
    assert parent.data.metrics == {"best/eval/loss": 0.2, "time/wall_s": 7.0}
    assert load_text(f"{parent.info.artifact_uri}/{constants.CONFIG_ARTIFACT}") == CONFIG
    statuses = []
    for trial in sweep.trials:
        run = client.get_run(trial.run_id)
        statuses.append(run.info.status)
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.params == {"train.lr": repr(0.001 * (int(trial.trial) + 1))} | {
            "model.lora.r": "16",
            "train.optimizer": "adamw",
        }
        assert load_text(f"{run.info.artifact_uri}/{constants.CONFIG_ARTIFACT}") == CONFIG
        assert run.info.end_time
    assert statuses == ["FINISHED", "FINISHED", "FAILED", "KILLED"]
    assert client.get_run(sweep.trials[0].run_id).info.run_name == "000 lr=0.001 r=16 optimizer=adamw"
    assert sweep.trials[2].error == "ValueError: no"


def test_when_and_where_a_trial_trained_is_read_back_as_far_as_a_tag_goes(uri: str) -> None:
    spans = [Span(held=at, trained=at + 0.5, ended=at + 9.0, workers=("host/0", "host/1")) for at in range(200)]
    with one_trial(uri) as recorder:
        recorder.trials.record_spans("0", spans)
    read = load_sweep(uri, "digits-1").trials[0].spans
    assert 50 < len(read) < 200
    assert list(read) == spans[-len(read) :]


def test_of_several_objectives_the_front_is_recorded_and_marked(uri: str) -> None:
    objectives = Objectives(("eval/loss", "speed"), ("min", "max"), {"memory": Limit(max=10)})
    recorder = open_recorder(uri, objectives=objectives)
    for trial, speed in (("0", 1.0), ("1", 3.0), ("2", 2.0)):
        recorder.trials.start(trial, {"train.lr": float(trial)}, CONFIG, 1)
        recorder.trials.log(trial, 1, {"eval/loss": 1.0 + int(trial), "speed": speed})
        recorder.trials.log(trial, 2, {"eval/loss": 4.0 + int(trial), "speed": 9.0})  # worse by the first objective
        recorder.trials.log(trial, 3, {"memory": 10.0 + int(trial)})
    recorder.update({"running": 3}, [("0", (1.0, 1.0), {}), ("2", (3.0, 2.0), {})], {"wall_s": 1.0})
    recorder.update({"finished": 3}, [("0", (1.0, 1.0), {}), ("1", (2.0, 3.0), {})], {"wall_s": 1.0})
    recorder.close("finished")
    sweep = load_sweep(uri, "digits-1")
    document = sweep.as_json()
    assert document["metric"] == ["eval/loss", "speed"]
    assert document["mode"] == ["min", "max"]
    assert [trial["value"] for trial in document["trials"]] == [[1.0, 1.0], [2.0, 3.0], [3.0, 2.0]]
    assert [(best["trial"], best["value"]) for best in document["best"]] == [("0", [1.0, 1.0]), ("1", [2.0, 3.0])]
    assert [trial.violation is not None for trial in sweep.trials] == [False, True, True]
    marked = fetch_runs(uri, {constants.TAG_PARETO: "true"})
    assert sorted(run.tags[constants.TAG_TRIAL] for run in marked) == ["0", "1"]
    assert "Pareto front of 2 trials" in sweep.tags["mlflow.note.content"]
    assert history(uri, sweep.mlflow.run_id, "best/speed")[-1][1] == 3.0
    listed = list_sweeps(uri)[0].as_json()
    assert listed["metric"] == ["eval/loss", "speed"]
    assert listed["best"] == 1.0


def test_no_trial_stays_marked_that_leaves_the_front_after_a_driver_was_killed_while_it_marked(uri: str) -> None:
    objectives = Objectives(("eval/loss", "speed"), ("min", "max"))
    recorder = open_recorder(uri, objectives=objectives)
    for trial in ("0", "1", "2"):
        recorder.trials.start(trial, {"train.lr": float(trial)}, CONFIG, 1)
        recorder.trials.log(trial, 1, {"eval/loss": 3.0 - int(trial), "speed": 1.0})
    recorder._delivery.put(Tags("1", {constants.TAG_PARETO: "true"}))  # the first entry of a status
    recorder.close("interrupted")
    recorder = open_recorder(uri, objectives=objectives, resume=True)
    recorder.update({"finished": 3}, [("2", (1.0, 1.0), {})], {"wall_s": 1.0})
    recorder.close("finished")
    marked = fetch_runs(uri, {constants.TAG_PARETO: "true"})
    assert [run.tags[constants.TAG_TRIAL] for run in marked] == ["2"]


def refuse(monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[Any], bool]) -> list[str]:
    """Make MLflow refuse calls with such metric values; return the list of their runs."""
    log_batch, refusals = MlflowClient.log_batch, list[str]()

    def refusing(client: MlflowClient, run_id: str, metrics: Any = (), **others: Any) -> None:
        if any(map(is_refused, metrics)):
            refusals.append(run_id)
            raise MlflowException("Invalid metric", INVALID_PARAMETER_VALUE)
        log_batch(client, run_id, metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", refusing)
    return refusals


@pytest.mark.parametrize(
    "is_refused", [{20}.__contains__, {20, 380, 550}.__contains__, lambda step: True], ids=["one", "several", "all"]
)
def test_a_metric_value_that_mlflow_refuses_leaves_the_others(
    uri_of_untried_tables: str, monkeypatch: pytest.MonkeyPatch, is_refused: Callable[[int], bool]
) -> None:
    uri, refusals = uri_of_untried_tables, refuse(monkeypatch, lambda each: each.key == "odd" and each.value > 1)
    with one_trial(uri) as recorder:
        for step in range(600):
            recorder.trials.log("0", step, {"eval/loss": 1.0, "odd": float(1 + is_refused(step))})
            if step in (400, 500):
                assert recorder._delivery.flush()
        recorder.trials.end("0", "finished", 600, 1)
    (trial,) = load_sweep(uri, "digits-1").trials
    assert [step for step, _ in history(uri, trial.run_id, "eval/loss")] == [*range(600)]
    if sum(map(is_refused, range(600))) < 600:
        written = [step for step, _ in history(uri, trial.run_id, "odd")]
        assert written == [step for step in range(600) if not is_refused(step)]
    assert len(refusals) <= 100


def test_values_of_other_metrics_are_written_where_the_first_metrics_are_refused(
    uri_of_untried_tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a trial that diverges: both metrics of its evaluation, and the last of many losses, are refused."""
    uri = uri_of_untried_tables
    refuse(monkeypatch, lambda each: each.value > 1)
    with one_trial(uri) as recorder:
        recorder.trials.log("0", 10, {"eval/accuracy": 2.0, "eval/loss": 2.0})
        for step in range(1, 11):
            recorder.trials.log("0", step, {"train/loss": 1.0 + (step == 10), "train/lr": 0.5})
    (trial,) = load_sweep(uri, "digits-1").trials
    assert [step for step, _ in history(uri, trial.run_id, "train/loss")] == [*range(1, 10)]
    assert [step for step, _ in history(uri, trial.run_id, "train/lr")] == [*range(1, 11)]


@pytest.mark.slow  # MLflow makes a database
def test_nothing_of_mlflows_own_is_printed_or_an_error_where_warnings_are(tmp_path: Path) -> None:
    code = (
        "import logging; logging.basicConfig(level=logging.INFO)\n"
        "from sweeps.config.objectives import Objectives\n"
        "from sweeps.tracking.sweep_run import SweepInfo\n"
        "from sweeps.tracking.recorder import Recorder\n"
        "from pathlib import Path\n"
        "loss = Objectives(('loss',), ('min',))\n"
        "sweep = SweepInfo(name='x-1', conf='x', objectives=loss, folder=Path.cwd(), config_yaml='')\n"
        "r = Recorder.open('sqlite:///mlflow.db', 'x', sweep)\n"
        "r.trials.start('0', {}, '', 1); r.trials.end('0', 'finished', 1, 1)\n"
        "r.close('finished')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "mlruns" / "1").is_dir()


@pytest.mark.parametrize(
    ("status", "shown_as"), [("stopped", "interrupted"), ("interrupted", "interrupted"), ("finished", "stopped")]
)
def test_a_trial_that_resume_continues_is_shown_as_interrupted_and_one_that_a_person_or_a_budget_ended_as_stopped(
    uri: str, status: str, shown_as: str
) -> None:
    recorder = open_recorder(uri)
    for trial in ("0", "1", "2"):
        recorder.trials.start(trial, POINT, CONFIG, 1)
    recorder.trials.end("0", "stopped", 5, 1)
    recorder.trials.end("1", "stopped", 5, 1, for_good=True)
    recorder.update({"stopped": 2, "running": 1}, [], {})
    recorder.close(status)
    record = load_sweep(uri, "digits-1")
    assert [trial.state for trial in record.trials] == ["stopped", "stopped", "running"]
    shown = record.settled()
    assert [trial.state for trial in shown.trials] == [shown_as, "stopped", "interrupted"]
    assert {state: count for state, count in shown.counts.items() if count} == Counter(
        trial.state for trial in shown.trials
    )


def test_every_face_calls_a_trial_that_resume_continues_interrupted(uri: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    recorder.trials.log("0", 5, {"eval/loss": 1.0})
    recorder.trials.end("0", "stopped", 5, 1)
    recorder.update({"stopped": 1}, [("0", (1.0,), POINT)], {})
    recorder.close("interrupted")
    record = load_sweep(uri, "digits-1")
    texts = [sweep_text(record), str(sweep_html(record)), "".join(changes(record, {})), str(of_sweep(record).as_json())]
    for print_it in (print_best, print_sweep, print_outcome):
        console = Console(file=io.StringIO(), width=200)
        print_it(record, console)
        texts.append(console.file.getvalue())  # type: ignore[attr-defined]
    assert ["interrupted" in each and "stopped" not in each for each in texts] == [True] * len(texts)
