"""Whole sweeps whose folder is in an object store: a real S3 server is all that their machines share."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from processes import outputs
from running import SHORT, run, start
from s3_server import BUCKET, s3_server
from stores import make_store
from waiting import wait_until

from sweeps.storage.committed_folder import committed, fetch
from sweeps.storage.object_store import ObjectStore
from sweeps_train import load_model
from sweeps_train.checkpoints.integrity import find_damage

OUTPUT = f"s3://{BUCKET}/sweeps"
SMALL = ("conf=digits", *SHORT, "scaling.num_workers=1", "cluster.num_cpus=1", f"output_dir={OUTPUT}")


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def machines(tmp_path: Path) -> dict[str, Path]:
    """Folders of machines that share nothing but the address of the record and the bucket."""
    made = {name: tmp_path / name for name in ("first", "second", "third")}
    for folder in made.values():
        folder.mkdir()
    make_store(tmp_path / "record.db")
    return made


def record(machines: dict[str, Path]) -> str:
    return f"sqlite:///{machines['first'].parent}/record.db"


def verb(folder: Path, *arguments: str) -> Any:
    process = start(folder, *arguments, "--json")
    out, err = outputs(process, 280)
    assert process.returncode == 0, err
    return json.loads(out)


def _is_removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def checkpoints(sweep: str) -> list[str]:
    return committed((ObjectStore(f"{OUTPUT}/{sweep}") / "trials").names())


@pytest.mark.slow
def test_a_sweep_goes_on_elsewhere_after_its_machine_is_lost(machines: dict[str, Path]) -> None:
    arguments = (*SMALL, "search.num_trials=4", f"tracking.uri={record(machines)}", "tracking.report=false")
    process = start(machines["first"], "run", *arguments, "--name", "lost")
    wait_until(lambda: any("/0002/" in f"/{name}" for name in checkpoints("lost")) or process.poll() is not None, 200)
    assert process.poll() is None, process.communicate()
    before = checkpoints("lost")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: _is_removed(machines["first"]), 60)  # its workers end soon after it

    resumed = verb(machines["second"], "resume", "lost", f"--tracking-uri={record(machines)}")
    assert resumed["status"] == "finished"
    assert resumed["counts"]["finished"] + resumed["counts"]["pruned"] == 4
    best = resumed["best"]["checkpoint"]
    assert best.startswith(f"{OUTPUT}/lost/trials/{resumed['best']['trial']}/step-")
    trials = {name.partition("/")[0] for name in before}
    assert trials <= {name.partition("/")[0] for name in checkpoints("lost")}

    elsewhere = (f"--tracking-uri={record(machines)}",)
    shown = verb(machines["third"], "show", "lost", *elsewhere)
    assert shown["best"] == resumed["best"]
    saved = machines["third"] / "model"
    verb(machines["third"], "best", "lost", "--save-model", str(saved), *elsewhere)
    assert load_model(saved) is not None
    cleaned = verb(machines["third"], "clean", "lost", "--keep-best", "1", *elsewhere)
    assert cleaned["freed"] > 0
    assert {name.partition("/")[0] for name in checkpoints("lost")} == {resumed["best"]["trial"]}


@pytest.mark.slow
def test_machines_with_nothing_but_the_store_stop_a_sweep_and_continue_it(machines: dict[str, Path]) -> None:
    bucket = f"--tracking-uri={OUTPUT}"
    # Long enough for the other machine to make its record and ask.
    long = ("train.max_steps=3000", "train.eval_every=100", "search.num_trials=2", "search/scheduler=none")
    process = start(machines["first"], "run", *SMALL, *long, "tracking.report=false", "--name", "alone")
    wait_until(lambda: checkpoints("alone") or process.poll() is not None, 200)
    assert process.poll() is None, process.communicate()
    assert [each["sweep"] for each in verb(machines["third"], "list", bucket) if each["status"] == "running"] == [
        "alone"
    ]
    assert verb(machines["third"], "stop", "alone", bucket)["status"] == "stopped"
    outputs(process, 120)
    resumed = verb(machines["second"], "resume", "alone", bucket)
    assert (resumed["status"], resumed["counts"]["finished"]) == ("finished", 2)
    shown = verb(machines["third"], "show", "alone", bucket)
    assert (shown["best"]["trial"], shown["best"]["value"]) == (resumed["best"]["trial"], resumed["best"]["value"])


@pytest.mark.slow
def test_trials_that_were_stopped_by_the_scheduler_have_their_checkpoints(tmp_path: Path) -> None:
    done = run(tmp_path, *SMALL, "search.num_trials=6", "search/scheduler=asha", "--name", "pruned")
    assert done.status == 0, done.err
    assert done.document["counts"]["pruned"] > 0
    names = checkpoints("pruned")
    for trial in done.trials():
        tags = trial.data.tags
        last = tags["sweeps.checkpoint.last"].removeprefix(f"{OUTPUT}/pruned/trials/")
        assert last in names
        # Its workers may have trained on, and removed earlier ones, before they heard that it was stopped.
        assert last >= f"{tags['sweeps.trial']}/step-{int(tags['sweeps.steps']):08d}"


def history(store: str, sweep: str, trial: int, metric: str) -> list[tuple[int, float]]:
    """Steps and values of a metric as MLflow has them."""
    client = MlflowClient(store)
    (experiment,) = (each for each in client.search_experiments() if each.name != "Default")
    chosen = f"tags.`sweeps.sweep` = '{sweep}' and tags.`sweeps.trial` = '{trial:04}'"
    (run_of_trial,) = client.search_runs([experiment.experiment_id], chosen)
    return sorted((each.step, each.value) for each in client.get_metric_history(run_of_trial.info.run_id, metric))


POPULATION = (
    *("conf=digits", "space=none", "model=vision_transformer", "train.eval_every=3", "train.log_every=1"),
    *("train.lr=tag(log,interval(1e-4,1e-1))", "train.momentum=interval(0.8,0.95)", "train.schedule=constant"),
    *("search/sampler=random", "search.metric=eval/loss", "search.mode=min", "search.num_trials=2"),
    *("search.scheduler.quantile=0.5", "search.default_first=false"),
    "search.points=[{train.lr: 0.1, train.momentum: 0.9}, {train.lr: 0.002, train.momentum: 0.9}]",
    *("scaling.num_workers=1", "cluster.num_cpus=1", f"output_dir={OUTPUT}", "tracking.report=false"),
)
"""Two trials, of which one diverges at once and goes on from the other."""


@pytest.mark.slow
@pytest.mark.parametrize(("scheduler", "lives_on_s"), [("pbt", 0.0), ("pb2", 5.0)])
def test_a_trial_goes_on_from_anothers_state_in_the_store_and_the_population_on_another_machine(
    machines: dict[str, Path], scheduler: str, lives_on_s: float
) -> None:
    arguments = (*POPULATION, f"search/scheduler={scheduler}", "train.max_steps=60")
    at = f"tracking.uri={record(machines)}"
    process = start(machines["first"], "run", *arguments, at, "--name", scheduler)
    wait_until(lambda: any("/lineage-" in each for each in checkpoints(scheduler)) or process.poll() is not None, 200)
    time.sleep(lives_on_s)  # whether its state that knows of this is in the store already, or not
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until(lambda: _is_removed(machines["first"]), 60)

    resumed = verb(machines["second"], "resume", scheduler, f"--tracking-uri={record(machines)}")
    assert (resumed["status"], resumed["counts"]["finished"]) == ("finished", 2)
    for trial in range(2):
        assert {step for step, _ in history(record(machines), scheduler, trial, "eval/loss")} == set(range(3, 61, 3))
        assert {step for step, _ in history(record(machines), scheduler, trial, "train/loss")} == set(range(1, 61))
        # Better than a guess: the one that diverged goes on from the other's weights. How much better is a matter of
        # the learning rates that the scheduler draws.
        assert history(record(machines), scheduler, trial, "eval/loss")[-1][1] < math.log(10)
    names = checkpoints(scheduler)
    assert any("/lineage-" in each for each in names)
    assert not [each for each in names if "/pinned/" in each]
    elsewhere = (f"--tracking-uri={record(machines)}",)
    verb(machines["third"], "best", scheduler, "--save-model", str(machines["third"] / "model"), *elsewhere)
    assert load_model(machines["third"] / "model") is not None
    verb(machines["third"], "clean", scheduler, "--keep-best", "1", *elsewhere)
    assert {name.partition("/")[0] for name in checkpoints(scheduler)} == {resumed["best"]["trial"]}


SAVES_LARGE_FILES = """
import os, tempfile, time
from pathlib import Path

import ray.train
from ray.train import Checkpoint

from sweeps_train import start_folder

FILES, SIZE = 60, 3 << 20


def train(config):
    (start_folder() / "worker.pid").write_text(str(os.getpid()))
    first = 1
    if (before := ray.train.get_checkpoint()) is not None:
        with before.as_directory() as folder:
            parts = {path.read_text()[-1] for path in Path(folder).glob("part-*")}
            assert len(parts) == 1 and len(list(Path(folder).glob("part-*"))) == FILES
            first = int(parts.pop()) + 1
    for step in range(first, 6):
        with tempfile.TemporaryDirectory() as folder:
            for part in range(FILES):
                Path(folder, f"part-{part:03}").write_text(str(step) * SIZE)
            report = {"loss": 1 / step, "process": float(os.getpid()), "first": float(first)}
            ray.train.report(report, checkpoint=Checkpoint(folder))
        time.sleep(0.5 + config["x"])
"""
"""A function whose checkpoints take seconds to upload."""


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_of_an_upload_costs_that_upload_alone(machines: dict[str, Path]) -> None:
    first, store = machines["first"], ObjectStore(f"{OUTPUT}/cut/trials/0000")
    (first / "mine.py").write_text(SAVES_LARGE_FILES)
    (first / "cut.yaml").write_text(
        "defaults: [ray_train_function, _self_]\nname: cut\n"
        "task: {_target_: mine.train, metrics: [loss, process, first]}\n"
        "search: {metric: loss, mode: min, num_trials: 1, scheduler: {kind: none}}\n"
    )
    arguments = (
        *("conf=cut.yaml", "~space", "~task.arguments"),
        *("+task.arguments.x=1.0", "task.arguments.x=interval(0.0, 1.0)"),
        *("scaling.num_workers=1", "cluster.num_cpus=1", "tracking.report=false"),
    )
    places = (f"output_dir={OUTPUT}", f"tracking.uri={record(machines)}")
    process = start(first, "run", *arguments, *places, "--name", "cut", "--json")

    def cut_off() -> str | None:
        """The second or a later checkpoint, while it is uploaded."""
        names = store.names()
        complete = committed(names)
        partial = {name.partition("/")[0] for name in names if name.startswith("step-")} - set(complete)
        return max(partial, default=None) if complete else None

    wait_until(lambda: cut_off() or process.poll() is not None, 200)
    assert process.poll() is None, process.communicate()
    os.kill(int((first / "worker.pid").read_text()), signal.SIGKILL)
    assert cut_off() is not None, "the upload had ended before"
    newest = max(name for name in committed(store.names()) if name.startswith("step-"))

    out, err = outputs(process, 280)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert [(trial["state"], trial["attempts"]) for trial in document["trials"]] == [("finished", 2)]
    losses = history(record(machines), "cut", 0, "loss")
    assert losses == [(each, pytest.approx(1 / each)) for each in range(1, 6)], "each step once"
    begins = [first for _, first in history(record(machines), "cut", 0, "first")]
    # It continues from the newest checkpoint in the store: on a slow machine one that was superseded before its turn is
    # not uploaded. What was reported of later steps before the kill stays as it was measured.
    assert begins[0] == 1
    assert begins[-1] == int(newest.removeprefix("step-")) + 1
    assert len({process for _, process in history(record(machines), "cut", 0, "process")}) == 2
    names = store.names()
    assert {name.partition("/")[0] for name in names if name.startswith("step-")} == set(committed(names))
    fetch(store / "step-00000005", machines["third"] / "last")
    assert find_damage(machines["third"] / "last") is None
