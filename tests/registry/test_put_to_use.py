"""After a search: its best trial as a config, trained again, registered, and run once more."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import artifacts
from processes import outputs
from running import SHORT, Done, run, start
from serving import Api
from waiting import wait_until

from sweeps import constants
from sweeps.cli import run_command
from sweeps.compose import Composition
from sweeps.driver.reproduce import MEASURED_IN_TIME, plan_reproduction
from sweeps.tracking.metric_history import fetch_metric_names
from sweeps.tracking.reader import find_sweep, load_sweep
from sweeps_train import load_model

pytestmark = pytest.mark.timeout(900)  # two whole sweeps, on a busy machine

COMPARED = {
    *("eval/accuracy", "eval/loss", "train/epoch", "train/loss", "train/lr", "train/num_workers"),
    *("train/grad_norm", "train/grad_norm_max"),
}
"""Metrics of a trial that are the same when it is reproduced."""


def call(folder: Path, *arguments: str, status: int = 0) -> tuple[str, str]:
    process = start(folder, *arguments)
    out, err = outputs(process, 400)
    assert process.returncode == status, err
    assert "Traceback" not in err
    return out, err


def called_here(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Call a verb that trains nothing in this process: its status, output and messages."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status, _ = run_command([*arguments])
    assert "Traceback" not in err.getvalue()
    return status, out.getvalue(), err.getvalue()


def refused(folder: Path, *arguments: str) -> str:
    """The message of a verb that ends before it starts anything."""
    status, _, err = called_here(folder, *arguments)
    assert status == 2
    return err


@pytest.mark.slow
def test_the_exported_best_trial_runs_as_it_is_and_gives_the_same_loss(digits: Done) -> None:
    out, err = call(digits.folder, "best", "first", "--export", "winner.yaml", "--json")
    best = json.loads(out)
    assert best == digits.document["best"]
    assert "run conf=winner.yaml" in err
    config = yaml.safe_load((digits.folder / "winner.yaml").read_text(encoding="utf-8"))
    assert config["space"] == {}
    assert config["search"]["num_trials"] == 1

    again = run(digits.folder, "conf=winner.yaml", "--name=again")
    assert again.document["best"]["value"] == best["value"]
    assert again.document["mlflow"]["experiment_id"] == digits.document["mlflow"]["experiment_id"]
    before, after = (digits.history(each["run_id"], "eval/loss") for each in (best, again.document["best"]))
    assert after[: len(before)] == before
    assert after[-1][0] == 40


def test_any_trial_can_be_shown_and_exported_and_mistakes_are_named(digits: Done) -> None:
    status, out, err = called_here(digits.folder, "best", "first", "--trial=1", "--export=second.yaml", "--json")
    assert status == 0, err
    assert json.loads(out)["trial"] == "0001"
    written = yaml.safe_load((digits.folder / "second.yaml").read_text(encoding="utf-8"))
    params: dict[str, Any] = digits.document["trials"][1]["params"]
    assert written["train"]["optimizer"] == params["train.optimizer"]
    assert written["model"]["kind"] == params["model"]

    assert "it has 0000 to 0003" in refused(digits.folder, "best", "first", "--trial=12")
    assert ".yaml" in refused(digits.folder, "best", "first", "--export=best.json")
    assert "cannot be written" in refused(digits.folder, "best", "first", "--export=no/best.yaml")
    assert "no such file" in refused(digits.folder, "run", "conf=nothing.yaml")


def test_a_sweep_records_where_it_comes_from(digits: Done) -> None:
    from sweeps.provenance.provenance import Provenance
    from sweeps.tracking.artifacts import read_text

    run_id = digits.document["mlflow"]["run_id"]
    origin = Provenance.from_json(read_text(digits.store, run_id, "origin/origin.json") or "")
    assert origin.command.startswith("python -m sweeps run conf=digits")
    assert origin.working_folder == str(digits.folder)
    assert origin.packages["torch"]
    assert origin.hardware["cpus"] > 0
    tags = digits.parent().data.tags
    assert tags["sweeps.data"] == origin.data_fingerprint
    assert tags["sweeps.seed"] == "0"
    requirements = read_text(digits.store, run_id, "origin/requirements.txt") or ""
    assert f"torch=={origin.packages['torch'].partition('+')[0]}\n" in requirements


def test_metrics_of_time_are_not_compared_when_a_trial_is_reproduced(digits: Done) -> None:
    names = fetch_metric_names(digits.store, [digits.document["best"]["run_id"]])
    assert {each for each in names if not MEASURED_IN_TIME.search(each)} == COMPARED


@pytest.mark.slow
def test_a_trial_is_reproduced_by_its_run_and_the_same_comes_out(digits: Done) -> None:
    trial = digits.document["trials"][1]
    out, err = call(digits.folder, "reproduce", trial["run_id"], "--json")
    document = json.loads(out)
    assert "code, packages and data are as they were" in err
    assert document["of"] == {"sweep": "first", "trial": "0001", "run_id": trial["run_id"]}
    assert document["equal"] is True
    assert document["differences"] == {}
    equal = {each["metric"]: each["equal"] for each in document["metrics"]}
    assert equal == dict.fromkeys(COMPARED, True)
    again = json.loads(call(digits.folder, "show", document["sweep"], "--json")[0])
    tags = digits.client.get_run(again["mlflow"]["run_id"]).data.tags
    assert (tags["sweeps.of"], tags["sweeps.of.sweep"], tags["sweeps.of.trial"]) == ("reproduce", "first", "0001")
    assert tags["sweeps.of.run"] == trial["run_id"]


def test_a_whole_sweep_is_planned_again_with_what_it_searched(digits: Done) -> None:
    found = plan_reproduction(digits.store, "first", None, "once-more", "python -m sweeps reproduce searched")
    assert found.plan.config.search.num_trials == 4
    assert found.plan.composition.searched_groups == ["model"]
    assert found.plan.tags["sweeps.of.run"] == digits.document["mlflow"]["run_id"]
    assert found.plan.config.tracking.uri == digits.store
    assert "there is no sweep" in refused(digits.folder, "reproduce", "nobody", "--dry-run")
    assert "no run" in refused(digits.folder, "reproduce", 32 * "0", "--dry-run")


@pytest.mark.parametrize("release", ["other", "later"])
def test_a_trial_of_a_sweep_that_this_release_refuses_is_planned_again(digits: Done, release: str) -> None:
    artifacts_of_run = digits.parent().info.artifact_uri.removeprefix("file://")
    file = Path(artifacts_of_run, constants.COMPOSITION_ARTIFACT)
    before = file.read_text(encoding="utf-8")
    document = json.loads(before)
    document["config"]["space"]["train.lr"] |= {"log": True, "step": 1.0}
    asked: list[Composition] = []
    try:
        found = plan_reproduction(digits.store, "first", "1", "alone", "", approve=asked.append)
        file.write_text(json.dumps(document | {"version": 99} if release == "later" else document), encoding="utf-8")
        again = plan_reproduction(digits.store, "first", "1", "alone", "")
    finally:
        file.write_text(before, encoding="utf-8")
    assert found.differences == again.differences
    assert "data" not in (again.differences or {})
    assert any(each.config.space for each in asked)


@pytest.mark.slow
def test_a_whole_sweep_is_reproduced_and_the_same_comes_out(tmp_path: Path) -> None:
    # Without early stopping, which would depend on who reports first, and one trial after the other.
    tokens = (*SHORT, "search/scheduler=none", "search.num_trials=3", "search.max_concurrent=1")
    before = run(tmp_path, "conf=digits", *tokens, "--name=before").document
    document = json.loads(call(tmp_path, "reproduce", "before", "--name=after", "--json")[0])
    assert document["equal"] is True
    assert {each["trial"] for each in document["metrics"]} == {"0000", "0001", "0002"}
    after = json.loads(call(tmp_path, "show", "after", "--json")[0])
    assert [(each["trial"], each["params"], each["value"]) for each in after["trials"]] == [
        (each["trial"], each["params"], each["value"]) for each in before["trials"]
    ]


PREDICT = """
import sys, json, mlflow, numpy
model = mlflow.pyfunc.load_model(sys.argv[1])
given = json.loads(sys.argv[2])
given = given if isinstance(given[0], str) else numpy.array(given, dtype="float32")
predicted = model.predict(given)
if hasattr(predicted, "columns"):  # a table with the names of the classes
    print(json.dumps({"classes": [*predicted.columns], "scores": predicted.to_numpy().tolist()}))
else:
    print(json.dumps(predicted if isinstance(predicted, list) else predicted.tolist()))
"""


def predicted(folder: Path, uri: str, given: Any) -> Any:
    """Predictions of a registered model in a process that cannot import this checkout."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    (folder / "elsewhere").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-P", "-c", PREDICT, uri, json.dumps(given)],
        env={**environment, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"},
        cwd=folder / "elsewhere",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_retraining_that_was_interrupted_is_registered_when_it_is_resumed(digits: Done) -> None:
    longer = ("train.max_steps=2000", "train.eval_every=50", "--name=resumed")
    model = ("--register=resumed_reader", "--save-model=saved")

    def trains() -> bool:
        sweep = find_sweep(digits.store, "resumed")
        return sweep is not None and any(trial.steps for trial in sweep.trials)

    with start(digits.folder, "retrain", "first", *longer, *model, "--json") as process:
        try:
            wait_until(trains, 400, every_s=0.3)
            process.send_signal(signal.SIGINT)
            out, err = outputs(process, 120)
        finally:
            process.kill()
    document = json.loads(out)
    assert (document["status"], document["model"]) == ("interrupted", None), err
    assert "its model is not saved; when it has finished, `best resumed --save-model saved` saves it" in err
    _, err = call(digits.folder, "resume", "resumed", "--json")
    assert "registered: version 1 of resumed_reader, as models:/resumed_reader@champion" in err
    version = digits.client.get_model_version_by_alias("resumed_reader", "champion")
    assert version.run_id == load_sweep(digits.store, "resumed").trials[0].run_id
    _, err = call(digits.folder, "resume", "resumed", "--json")
    assert "registered" not in err


@pytest.mark.slow
def test_a_retrained_best_trial_is_a_champion_that_loads_and_predicts_elsewhere(digits: Done) -> None:
    import torch

    out, err = call(digits.folder, "retrain", "first", "train.max_steps=20", "--register=digit_reader", "--json")
    document = json.loads(out)
    assert document["model"] == {
        "name": "digit_reader",
        "version": "1",
        "alias": "champion",
        "uri": "models:/digit_reader@champion",
    }
    assert "models:/digit_reader@champion" in err
    assert [trial["steps"] for trial in document["trials"]] == [20]

    version = digits.client.get_model_version_by_alias("digit_reader", "champion")
    tags = version.tags
    assert (tags["sweeps.sweep"], tags["sweeps.trial"]) == (document["sweep"], "0000")
    assert (tags["sweeps.of.sweep"], tags["sweeps.of.trial"]) == ("first", digits.document["best"]["trial"])
    assert tags["sweeps.data"] == digits.parent().data.tags["sweeps.data"]
    assert version.run_id == document["best"]["run_id"]
    assert digits.client.get_run(version.run_id).info.status == "FINISHED"
    kept = [yaml.safe_load(each.read_text(encoding="utf-8")) for each in digits.folder.rglob("MLmodel")]
    assert {each["metadata"]["sweeps.classes"] for each in kept} == {json.dumps([*"0123456789"])}
    for stage in ("fetching the checkpoint of trial 0000", "loading its model", "logging it to MLflow"):
        assert f"registering: {stage}" in err

    given = torch.rand(3, 1, 8, 8)
    folder = artifacts.download_artifacts(document["best"]["checkpoint"], tracking_uri=digits.store)
    expected = load_model(folder)(given).tolist()
    answer = predicted(digits.folder, document["model"]["uri"], given.tolist())
    assert answer["classes"] == [*"0123456789"]
    assert answer["scores"] == [pytest.approx(row, abs=1e-5) for row in expected]


@pytest.mark.slow
def test_a_trial_is_registered_as_it_is_and_mistakes_are_named_before_training(digits: Done) -> None:
    out, _ = call(digits.folder, "best", "first", "--register=reader", "--alias=first", "--json")
    assert json.loads(out)["model"]["uri"] == "models:/reader@first"
    assert json.loads(out)["best"] == digits.document["best"]
    out, _ = call(digits.folder, "best", "first", "--register=reader", "--alias=", "--json")
    assert json.loads(out)["model"] == {"name": "reader", "version": "2", "alias": None, "uri": "models:/reader/2"}
    assert "--merge" in refused(digits.folder, "best", "first", "--register=reader", "--merged")
    assert "--alias=v1" in refused(digits.folder, "retrain", "first", "--alias=v1")
    assert "--register=a/b" in refused(digits.folder, "retrain", "first", "--register=a/b")
    assert "train.max_step" in refused(digits.folder, "retrain", "first", "train.max_step=1")
    assert "use `run` to search" in refused(digits.folder, "retrain", "first", "train.lr=choice(0.1,0.2)")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # MLflow's and torch's own, in this process
def test_a_trial_is_registered_from_its_page(digits: Done, tmp_path: Path) -> None:
    api = Api(digits.store, f"database=sqlite:///{tmp_path}/service.db", f"output_dir={digits.folder}/outputs")
    client = api.client(follow_redirects=False)
    assert 'action="/sweeps/first/register"' in client.get("/sweeps/first").text
    answer = client.post("/sweeps/first/register", data={"model": "from_page", "trial": "", "alias": "first"})
    assert answer.headers["location"] == "/sweeps/first?done=register"
    assert "the newest version of the model" in client.get(answer.headers["location"]).text
    version = digits.client.get_model_version_by_alias("from_page", "first")
    assert version.tags["sweeps.trial"] == digits.document["best"]["trial"]
    api.close()


def test_a_retrained_trial_takes_another_option_of_a_group(digits: Done) -> None:
    tokens = ("retrain", "first", "model=vision_transformer", "--dry-run", "--json")
    status, out, err = called_here(digits.folder, *tokens)
    assert status == 0, err
    config = json.loads(out)["config"]
    assert config["model"]["kind"] == "vision_transformer"
    assert config["train"]["lr"] == digits.document["best"]["params"]["train.lr"]
    assert config["search"]["num_trials"] == 1


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Done:
    tokens = ("train.max_steps=8", "train.eval_every=8", "train.log_every=4", "data.max_eval_documents=8")
    more = ("data.max_train_documents=200", "search=random", "search.num_trials=1", "train.lr=0.02", "--name=adapted")
    return run(tmp_path_factory.mktemp("adapted"), "conf=llm_lora", *tokens, *more)


@pytest.mark.slow
@pytest.mark.parametrize("merged", [False, True])
def test_a_language_model_loads_as_adapters_on_their_base_or_merged(adapted: Done, merged: bool) -> None:
    from transformers import AutoTokenizer

    name = "merged" if merged else "adapters"
    options = ["--merged"] if merged else []
    out, err = call(adapted.folder, "best", "adapted", f"--register={name}", *options, "--json")
    assert "Warning" not in err
    uri = json.loads(out)["model"]["uri"]
    folder = artifacts.download_artifacts(adapted.document["best"]["checkpoint"], tracking_uri=adapted.store)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    given = "Return a list of the"
    generated = load_model(folder).generate(
        **tokenizer(given, return_tensors="pt", return_token_type_ids=False), max_new_tokens=64, do_sample=False
    )
    expected = tokenizer.decode(generated[0], skip_special_tokens=True)
    assert len(expected) > len(given)
    assert predicted(adapted.folder, uri, [given]) == [expected]


@pytest.mark.slow
def test_a_model_is_saved_where_only_mlflow_is_reachable(adapted: Done, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def save(*arguments: str, status: int = 0) -> str:
        return call(tmp_path, *arguments, f"--tracking-uri={adapted.store}", status=status)[1]

    hidden = (adapted.folder / "outputs").rename(adapted.folder / "hidden")
    try:
        said = save("best", "adapted", "--save-model=adapters")
        assert "saved: adapters, the model of trial 0000" in said
        save("best", "adapted", "--trial=0", "--save-model=models/merged", "--merge")
    finally:
        hidden.rename(adapted.folder / "outputs")
    given = AutoTokenizer.from_pretrained(tmp_path / "adapters")("Return a list", return_tensors="pt").input_ids
    checkpoint = artifacts.download_artifacts(adapted.document["best"]["checkpoint"], tracking_uri=adapted.store)
    expected = load_model(checkpoint)(given).logits
    for folder in ("adapters", "models/merged"):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / folder)
        assert (model(given).logits - expected).abs().max() < 1e-3
    assert not [*tmp_path.rglob("training_state.pt")]

    before = (tmp_path / "adapters" / "training.json").read_bytes()
    assert "not empty" in save("best", "adapted", "--save-model=adapters", status=2)
    assert "not empty" in save("retrain", "adapted", "--save-model=adapters", "--no-register", status=2)
    assert (tmp_path / "adapters" / "training.json").read_bytes() == before
    assert "--tracking-uri" in refused(tmp_path, "best", "adapted", "--save-model=new", "--server=http://127.0.0.1:9")


@pytest.mark.slow
def test_a_retrained_model_is_saved_and_not_registered_if_asked_and_other_models_have_no_adapters(digits: Done) -> None:
    import torch

    tokens = ("retrain", "first", "train.max_steps=10", "--no-register", "--save-model=again", "--json")
    assert json.loads(call(digits.folder, *tokens)[0])["model"] is None
    assert load_model(digits.folder / "again")(torch.rand(2, 1, 8, 8)).shape == (2, 10)
    assert "--merge" in refused(digits.folder, "best", "first", "--save-model=x", "--merge")
