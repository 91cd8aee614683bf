"""A user's Ray Train function as a task: run, searched, stopped and resumed without any change to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow import artifacts
from running import NO_PREFLIGHT, Done, own_function, points, run

from sweeps_train.config import FunctionTask
from sweeps_train.frameworks.bound_function import bind_function

pytestmark = pytest.mark.timeout(600)

USERS = """
import argparse, json, os, tempfile
from pathlib import Path
import ray.train

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)

def train(config):
    rank, fault = ray.train.get_context().get_world_rank(), config["fault"]
    checkpoint, start = ray.train.get_checkpoint(), 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = {path.name: int(path.read_text()) for path in Path(folder).iterdir()}
        assert set(saved) == {"0", "1"}, saved
        start = saved[str(rank)]
    note(config, rank, "starts", start)
    fault_file = Path("fault.txt")  # in the trial's own folder
    if fault_file.exists():
        assert fault_file.read_text() == fault, "another trial works here"
    elif rank == 0:
        fault_file.write_text(fault)
    epoch = start
    try:
        for epoch in range(start, parser.parse_args().epochs):  # a script's defaults, and no options of Ray's processes
            if fault == "dies" and epoch == 3 and start == 0 and rank == 1:
                os.kill(os.getpid(), 9)
            try:
                report(config, rank, epoch)
            except Exception:
                note(config, rank, "caught", epoch)  # a stop is none of its business
                raise
    finally:
        note(config, rank, "ends", epoch)

def report(config, rank, epoch):
    metrics = {"loss": config["level"] - 0.01 * epoch, "done": False, "note": "no number"}
    if config["fault"] == "misspells":
        metrics["los"] = metrics.pop("loss")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / str(rank)).write_text(str(epoch + 1))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))

def note(config, rank, what, epoch):
    line = {"fault": config["fault"], "rank": rank, "what": what, "epoch": epoch, "pid": os.getpid()}
    with open(config["notes"], "a") as file:
        file.write(json.dumps(line) + "\\n")
"""
LEVELS = {"none": 1.0, "dies": 0.9, "bad": 2.0, "misspells": 1.0, "good": 0.8}
"""Level of the loss by fault."""
QUICK = ["none", "bad", "good"]
TARGET = "search.stop.target=0.755"
"""Reached at the last report of ``good``."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("warm", QUICK), id="warm"),
        pytest.param(("warm", ["none", "dies", "bad", "good"]), marks=pytest.mark.slow, id="warm, with a death"),
        pytest.param(("process", list(LEVELS)), marks=pytest.mark.slow, id="process"),
    ],
)
def sweep(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Done, list[dict[str, Any]]]:
    isolation, faults = request.param
    folder = tmp_path_factory.mktemp(isolation)
    notes = folder / "notes"
    tried = [{"task.arguments.fault": fault, "task.arguments.level": LEVELS[fault]} for fault in faults]
    done = run(
        folder,
        *own_function(folder, USERS, f"{{fault: none, level: 1.0, notes: {notes}}}"),
        f"task.arguments.fault=choice({', '.join(faults)})",
        "task.arguments.level=interval(0.5, 2.5)",
        points(*tried),
        f"search.num_trials={len(faults) + 1}",
        TARGET,
        f"scaling.isolation={isolation}",
        "cluster.num_cpus=2",
        NO_PREFLIGHT,
        within_s=500,
    )
    return done, [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]


Sweep = tuple[Done, list[dict[str, Any]]]


def test_a_function_is_searched_stopped_and_retried_like_any_task(sweep: Sweep) -> None:
    done, _ = sweep
    trials = {trial["params"]["task.arguments.fault"]: trial for trial in done.document["trials"]}
    expected = {
        "none": ("finished", 1),
        "dies": ("finished", 2),
        "bad": ("pruned", 1),
        "good": ("finished", 1),
        "misspells": ("failed", 1),
    }
    ends = {name: (trial["state"], trial["attempts"]) for name, trial in trials.items()}
    assert ends == {name: expected[name] for name in trials}, done.err
    misspelt = "search.metric=loss is not reported; use one of ['done', 'los', 'note']" in done.err
    assert misspelt is ("misspells" in trials)
    assert done.document["best"]["params"]["task.arguments.fault"] == "good"


def test_a_target_ends_the_search_at_the_trial_that_reaches_it(sweep: Sweep) -> None:
    done, _ = sweep
    last = done.document["trials"][-1]
    assert (last["params"]["task.arguments.fault"], last["value"]) == ("good", pytest.approx(0.75))
    assert done.document["status"] == "finished"
    assert f"{TARGET} is reached" in done.err
    assert done.parent().data.tags["sweeps.ended"] == f"{TARGET} is reached"


def test_every_report_is_recorded_once_at_its_count(sweep: Sweep) -> None:
    done, _ = sweep
    for trial in done.trials():
        if trial.data.tags["sweeps.state"] == "finished":
            level = LEVELS[trial.data.params["task.arguments.fault"]]
            assert [(step, round(value, 6)) for step, value in done.history(trial.info.run_id, "loss")] == [
                (step, round(level - 0.01 * (step - 1), 6)) for step in range(1, 7)
            ]


def test_a_retry_resumes_from_the_files_of_all_workers_and_a_new_trial_from_nothing(sweep: Sweep) -> None:
    _, notes = sweep
    expected = {"none": [0, 0], "dies": [0, 0, 3, 3], "bad": [0, 0], "good": [0, 0], "misspells": [0, 0]}
    starts: dict[str, list[int]] = {}
    for note in notes:
        if note["what"] == "starts":
            starts.setdefault(note["fault"], []).append(note["epoch"])
    assert starts == {fault: expected[fault] for fault in starts}


def test_a_stopped_function_is_left_at_the_same_report_on_all_workers(sweep: Sweep) -> None:
    _, notes = sweep
    ends = [note["epoch"] for note in notes if note["what"] == "ends" and note["fault"] == "bad"]
    assert len(ends) == 2
    assert ends[0] == ends[1] < 5
    assert not [note for note in notes if note["what"] == "caught" and note["fault"] == "bad"]


def test_a_slot_outlives_a_function_that_was_stopped_where_it_is_asked_to(sweep: Sweep) -> None:
    done, notes = sweep
    pids = {fault: {note["pid"] for note in notes if note["fault"] == fault} for fault in LEVELS}
    warm = "isolation: warm" in Path(
        artifacts.download_artifacts(f"{done.parent().info.artifact_uri}/config.yaml")
    ).read_text(encoding="utf-8")
    assert (len(pids["bad"] & pids["good"]) == 2) is warm
    if pids["dies"]:
        assert (len(pids["none"] & pids["dies"]) > 0) is warm


def test_mlflow_has_exactly_the_files_that_the_function_saved(sweep: Sweep) -> None:
    done, _ = sweep
    for trial in done.trials():
        if trial.data.tags["sweeps.state"] == "finished":
            for which in ("best", "last"):
                uri = trial.data.tags[f"sweeps.checkpoint.{which}"]
                folder = Path(artifacts.download_artifacts(uri, tracking_uri=done.store))
                assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == {
                    "0": "6",
                    "1": "6",
                }


@pytest.mark.slow
def test_the_example_is_the_same_in_fresh_processes_and_as_the_second_in_a_slot(tmp_path: Path) -> None:
    point = {"task.arguments.lr": 0.01, "task.arguments.hidden": 16, "task.arguments.batch_size": 32}
    other = {**point, "task.arguments.hidden": 64}
    histories = []
    for isolation, tried in (("process", [point]), ("warm", [other, point])):
        folder = tmp_path / isolation
        folder.mkdir()
        done = run(
            folder,
            "conf=ray_train_function",
            points(*tried),
            f"search.num_trials={len(tried)}",
            "search.default_first=false",
            "search.scheduler={kind: none}",
            "task.arguments.epochs=4",
            f"scaling.isolation={isolation}",
        )
        histories.append(done.history(done.trials()[-1].info.run_id, "loss"))
    assert len(histories[0]) == 4
    assert histories[0] == histories[1]


def test_a_function_is_called_with_the_mapping_or_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def bind(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        monkeypatch.setattr("sweeps_train.frameworks.bound_function.import_target", lambda *_: function)
        bind_function(FunctionTask(kind="function", _target_="users.train", arguments=arguments))()  # type: ignore[call-arg]

    bind(called.append, {"lr": 1})
    bind(lambda config=None: called.append(config), {"lr": 2})
    bind(lambda: called.append("nothing"), {})
    assert called == [{"lr": 1}, {"lr": 2}, "nothing"]
    with pytest.raises(ValueError, match=r"task.arguments=.*users.train takes no arguments"):
        bind(lambda: None, {"lr": 1})
    with pytest.raises(ValueError, match="asks for model, config"):
        bind(lambda model, config: None, {"lr": 1})
