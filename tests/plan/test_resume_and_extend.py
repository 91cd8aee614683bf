"""Sweeps that go on after their end, or beyond it: extend and resume, with real sweeps."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from composing import composed_digits
from continuing import ONE_AT_ONCE, SEARCH, SPACE, histories, journal, wait_for
from mlflow import MlflowClient
from mlflow.artifacts import load_text
from recording import record_small_sweep
from running import NO_PREFLIGHT, Done, ended, run, start, verb

from sweeps.cli import run_command
from sweeps.constants import NUMBER
from sweeps.errors import UserError
from sweeps.plan import extend
from sweeps.runtime.events import Log, Report, Saved
from sweeps.runtime.report_log import REPORT_LOG_FILE, ReportLog, read_report_log
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trial_reporter import undelivered
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.tracking.reader import load_sweep


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("reopening")
    tokens = (*SEARCH, *ONE_AT_ONCE, NO_PREFLIGHT, "search.num_trials=5", "search.stop.target=0.02")
    return run(folder, *tokens, "--name", "short")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("search.num_trials=3", ["search.num_trials=3", "already has 4", "for 3 more, write search.num_trials=7"]),
        (
            "search.num_trials=4",
            ["search.num_trials=4: already has this value", "first has ended with 4 trials", "larger number"],
        ),
        (
            "search.metric=eval/loss",
            ["choices of space.PATH; for other changes run a new sweep with search.warm_start"],
        ),
        ("search.num_trial=9", ["search.num_trial=9", "did you mean search.num_trials"]),
        ("train.lr=1", ["train.lr=1", "search.num_trials", "warm_start"]),
        ("search.num_trials=many", ["search.num_trials=", "many"]),
        ("search.stop.cost.limit=5", ["search.stop.cost", "per_gpu_hour"]),
        ("search.num_trials=choice(9,10)", ["one value"]),
        ("train.max_steps=80", ["train.max_steps=80", "trial 0000", "train.schedule=", "first step"]),
        (
            "train.max_steps=10",
            ["train.max_steps=10: this sweep's trials have train.max_steps=", "only make them longer"],
        ),
        ("space.train.lr.low=0.01", ["space.train.lr", "includes the old one", "low 0.0001, high 0.1"]),
        ("space.train.lr.step=0.01", ["space.train.lr.step=0.01", "choices of space.PATH"]),
        ("space.train.rl.high=1", ["train.rl is not searched", "train.lr"]),
        ("space.model.dropout.high=2", ["model.dropout", "2"]),
    ],
)
def test_what_extend_cannot_change_is_refused_before_anything_starts(
    digits: Done, change: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(digits.folder)
    status, _ = run_command(["extend", "first", change])
    err = capsys.readouterr().err
    assert status == 2
    assert all(word in err for word in words), err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("trial", "may_be_longer"),
    [
        ({"state": "running"}, False),  # its driver was killed
        ({"state": "stopped"}, False),  # it was interrupted
        ({"state": "pruned"}, False),
        ({"state": "stopped", "steps": 0}, True),
        ({"state": "stopped", "stopped_for_good": True}, True),
        ({"state": "failed"}, True),
    ],
)
def test_a_trial_whose_learning_rate_has_decayed_cannot_become_longer_though_it_has_not_finished(
    uri: str, trial: dict[str, Any], *, may_be_longer: bool
) -> None:
    record_small_sweep(uri)
    recorded = load_sweep(uri, "digits-1")
    record = replace(recorded, trials=[replace(recorded.trials[0], params={}, **trial)])
    refused = "trial 0 was trained with train.schedule=cosine"
    with nullcontext() if may_be_longer else pytest.raises(UserError, match=refused):
        longer = extend.extended(composed_digits("train.max_steps=40"), {"train.max_steps": 80}, record)
        assert longer.config.train.max_steps == 80


GP = ("search/sampler=gp", "space=none", "model.channels=range(8, 64)")
BRUTE_FORCE = ("search/sampler=brute_force", "space=none", "seed=range(0, 200001)", "model.channels=range(8, 64)")


def test_a_wider_space_that_no_new_sweep_could_search_is_refused(uri: str) -> None:
    record_small_sweep(uri)
    record, high = load_sweep(uri, "digits-1"), "space.model.channels.high"
    for overrides, mistake in ((GP, "search.sampler.kind=gp lists its 2"), (BRUTE_FORCE, ".* makes 2,")):
        with pytest.raises(UserError, match=f"^space.model.channels: {mistake}[0-9,]* values[^\n]*$"):
            extend.extended(composed_digits(*overrides), {high: 2 * 10**9 + 10}, record)
        # The seeds of BRUTE_FORCE are too many for a new sweep, and an earlier release began it with them.
        before = composed_digits(*overrides)
        space = extend.extended(before, {high: 128}, record).config.space
        assert space["model.channels"] == replace(before.config.space["model.channels"], high=128)


@pytest.mark.slow
def test_an_extended_sweep_goes_on_to_the_exact_trial_and_touches_no_earlier_one(short: Done) -> None:
    before = histories(short)
    changes = ("search.stop.target=null", "search.num_trials=6", "search.stop.plateau.trials=9")
    document = verb(short.folder, "extend", "short", *changes, "--json").document
    assert document["mlflow"] == short.document["mlflow"]
    assert [trial["trial"] for trial in document["trials"]] == [f"{number:04}" for number in range(6)]
    assert document["counts"]["finished"] == 6
    assert document["trials"][0]["run_id"] == short.document["trials"][0]["run_id"]
    after = histories(short)
    assert after["0000"] == before["0000"]
    assert all([step for step, _ in history] == [10, 20, 30, 40] for history in after.values())
    points = [json.dumps(trial["params"], sort_keys=True) for trial in document["trials"]]
    assert len(set(points)) == 6
    assert document["time"]["wall_s"] > short.document["time"]["wall_s"]
    folder = short.parent().info.artifact_uri
    assert "num_trials: 6" in load_text(f"{folder}/config.yaml")
    assert json.loads(load_text(f"{folder}/origin/sweep.json"))["config"]["search"]["num_trials"] == 6


@pytest.mark.slow
def test_a_running_sweep_is_extended_from_another_terminal(tmp_path: Path) -> None:
    long = ("train.max_steps=1500", "train.eval_every=250", "train.log_every=50")
    process = start(tmp_path, "run", *SEARCH, *ONE_AT_ONCE, *long, "search.num_trials=1", "--name", "long", "--json")
    wait_for(tmp_path, "long", lambda sweep: sweep.trials and sweep.trials[0].steps > 0, process)
    assert "long continues: up to 2 trials" in verb(tmp_path, "extend", "long", "search.num_trials=2").err
    assert "long is already run by another process" in verb(tmp_path, "resume", "long", status=2).err
    document = ended(tmp_path, process, within_s=200).document
    assert document["counts"]["finished"] == 2
    assert [trial["attempts"] for trial in document["trials"]] == [1, 1]
    parent = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(document["mlflow"]["run_id"])
    assert "num_trials: 2" in load_text(f"{parent.info.artifact_uri}/config.yaml")
    composition = json.loads(load_text(f"{parent.info.artifact_uri}/origin/sweep.json"))
    assert composition["config"]["search"]["num_trials"] == 2


@pytest.mark.slow
def test_longer_trials_go_on_from_their_end_as_if_they_had_always_been_longer_and_a_wider_space_is_searched(
    tmp_path: Path,
) -> None:
    arguments = (*SEARCH, *ONE_AT_ONCE, "train.schedule=constant", "search.num_trials=2", "search/sampler=tpe")
    done = run(tmp_path, *arguments, "--name", "grown")
    before = histories(done)
    changes = ("train.max_steps=80", "search.num_trials=14", "space.train.lr.high=10", "space.train.lr.low=1e-4")
    extended = verb(tmp_path, "extend", "grown", *changes, "--json")
    document = extended.document
    assert document["counts"]["finished"] == 14
    assert [trial["attempts"] for trial in document["trials"]] == [2, 2, *[1] * 12]
    assert [trial["params"] for trial in document["trials"]][:2] == [t["params"] for t in done.document["trials"]]
    rates = [trial["params"]["train.lr"] for trial in document["trials"]]
    assert min(rates) < 1e-3 or max(rates) > 1e-1
    after = histories(extended)
    assert all([step for step, _ in history] == list(range(10, 81, 10)) for history in after.values())
    for trial in ("0000", "0001"):
        assert after[trial][:4] == before[trial]
    point = ", ".join(f"{path}: {value!r}" for path, value in done.document["trials"][1]["params"].items())
    alone = ("search.default_first=false", "search.num_trials=1", f"search.points=[{{{point}}}]", "--name=alone")
    always = run(tmp_path, *arguments, "train.max_steps=80", *alone)
    assert histories(always)["0000"] == after["0001"]


@pytest.mark.slow
def test_a_sweep_whose_files_were_torn_and_moved_goes_on_from_what_is_whole(tmp_path: Path) -> None:
    chance = random.Random(0)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    arguments = (*SEARCH, *ONE_AT_ONCE, "train.max_steps=200", "search.num_trials=3", "--name", "torn")
    process = start(first, "run", *arguments)
    wait_for(first, "torn", lambda sweep: len(sweep.trials) == 2 and sweep.trials[1].steps >= 60, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = load_sweep(f"sqlite:///{first}/mlflow.db", "torn")
    folder = second / "elsewhere"
    shutil.move(first / "outputs" / "torn", folder)
    checkpoints = sorted((folder / "trials" / "0001").glob("step-????????"))
    state = checkpoints[-1] / "training_state.pt"
    state.write_bytes(state.read_bytes()[: chance.randrange(1000)])
    for name in ("optuna.log", "trials/0001/reports.jsonl"):
        with (folder / name).open("ab") as file:
            file.write((folder / name).read_bytes()[:17])
    (folder / "sweep.json").write_bytes((folder / "sweep.json").read_bytes()[:300])
    for file in (folder / "tune").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    store = f"--tracking-uri=sqlite:///{first}/mlflow.db"
    assert "--folder" in verb(second, "resume", "torn", store, status=2).err
    resumed = verb(second, "resume", "torn", store, f"--folder={folder}", "--json")
    err, document = resumed.err, resumed.document
    assert f"its checkpoint {checkpoints[-1].name} is damaged and was renamed" in err
    assert "optuna.log could be read up to byte" in err
    assert document["counts"]["finished"] == 3
    assert [trial["attempts"] for trial in document["trials"]] == [1, 2, 1]
    assert [trial["params"] for trial in document["trials"]][:2] == [trial.params for trial in before.trials]
    done = Done(first, 0, err, document)
    for history in histories(done).values():
        assert [step for step, _ in history] == list(range(10, 201, 10))
    assert done.parent().data.tags["sweeps.folder"] == str(folder)
    assert not (second / "mlflow.db").exists()
    trained = [
        trial
        for trial in optuna.load_study(study_name="torn", storage=journal(folder / "optuna.log")).get_trials()
        if NUMBER in trial.user_attrs
    ]
    assert [trial.user_attrs[NUMBER] for trial in trained] == [0, 1, 2]


def test_what_a_dead_driver_had_not_recorded_is_read_from_beside_the_checkpoints(tmp_path: Path) -> None:
    metrics = {"eval/accuracy": 0.5, "broken": math.nan}
    spool = ReportLog(str(tmp_path / "trials" / "0003"))
    spool.write(Log("0003", 1, 5, {"train/loss": 2.0}, 1000))
    spool.write(Report("0003", 1, 10, metrics, 2000, checkpoint="step-00000010", done=True))
    spool.close()
    path = tmp_path / "trials" / "0003" / REPORT_LOG_FILE
    with path.open("ab") as file:
        file.write(b'{"kind": "Log", "trial": "00')  # it was killed here
    spool = ReportLog(str(path.parent))
    spool.write(Log("0003", 2, 15, {"train/loss": 1.0}, 3000))
    spool.close()
    events = list(read_report_log(str(path.parent)))
    assert [(type(event), event.attempt, event.step) for event in events] == [
        (Log, 1, 5),
        (Report, 1, 10),
        (Log, 2, 15),
    ]
    assert math.isnan(events[1].metrics["broken"])
    here = str(path.parent / "step-00000010")  # wherever the folder was when it was written
    assert events[1] == Report("0003", 1, 10, events[1].metrics, 2000, checkpoint=here, done=True)
    assert [event.step for event in read_report_log(str(path.parent), up_to=10)] == [5, 10]
    assert list(read_report_log(str(tmp_path))) == []


def test_what_tune_may_not_have_heard_of_is_posted_again_each_step_as_it_was_measured_first(tmp_path: Path) -> None:
    spool = ReportLog(str(tmp_path))
    for attempt, step in ((1, 10), (1, 20), (1, 30), (2, 30), (2, 40)):
        spool.write(Log("0003", attempt, step - 5, {"train/loss": attempt}, 1000))
        spool.write(Report("0003", attempt, step, {"eval/loss": attempt}, 1000, checkpoint="step-00000010"))
    spool.close()
    nothing: Any = None
    assignment = Assignment(
        *("0003", 3, nothing, ("eval/loss",), ("min",), str(tmp_path), "", None),
        last_delivered=20,
        hang_timeout_s=1800.0,
        prepare_timeout_s=14400.0,
    )
    found = [(type(event), event.attempt, event.step, *event.metrics.values()) for event in undelivered(assignment)]
    assert found == [
        (Report, 3, 20, 1),
        (Log, 3, 25, 1),
        (Report, 3, 30, 1),
        (Log, 3, 35, 2),
        (Report, 3, 40, 2),
    ]
    assert all(event.checkpoint is None for event in undelivered(assignment) if isinstance(event, Report))  # gone
    heard_nothing = replace(assignment, last_delivered=None)
    assert [event.step for event in undelivered(heard_nothing)] == [5, 10, 15, 20, 25, 30, 35, 40]
    waited = replace(heard_nothing, waits_for_decision=True)
    assert undelivered(waited) == []
    spool = ReportLog(str(tmp_path))
    spool.write(Log("0003", 2, 45, {"train/loss": 2}, 1000))
    spool.close()
    assert [(type(event), event.attempt, event.step) for event in undelivered(waited)] == [(Log, 3, 45)]
    assert undelivered(replace(waited, attempt=1)) == []
    spool = ReportLog(str(tmp_path))
    for step in (50, 60):  # they were uploaded, and nobody was told
        uri = f"s3://bucket/sweeps/lr/trials/0003/step-{step:08d}?region=eu-west-1"
        spool.write(Saved("0003", 2, step, {"eval/loss": 1.0}, 1000, checkpoint=uri))
    spool.close()
    saved = [event for event in undelivered(assignment, {"step-00000050"}) if isinstance(event, Saved)]
    assert [event.step for event in saved] == [50], "the other one is no longer in the store"


@pytest.mark.slow
def test_a_spent_budget_stops_what_runs_and_more_of_it_lets_that_go_on(tmp_path: Path) -> None:
    arguments = (*SEARCH, *ONE_AT_ONCE, "train.max_steps=4000", "train.eval_every=50", "search.num_trials=1")
    done = run(tmp_path, *arguments, "--name", "budget", "search.stop.wall_hours=0.008")
    assert "search.stop.wall_hours=0.008 is used up" in done.err
    assert done.document["counts"]["stopped"] == 1
    assert done.document["time"]["wall_s"] < 60
    steps = done.document["trials"][0]["steps"]
    extended = verb(tmp_path, "extend", "budget", "search.stop.wall_hours=1", "--json")
    assert extended.document["counts"]["finished"] == 1
    assert extended.document["trials"][0]["steps"] == 4000 > steps > 0
    history = histories(extended)["0000"]
    assert [step for step, _ in history] == sorted({step for step, _ in history})


@pytest.mark.slow
def test_a_running_sweep_that_is_extended_to_a_spent_budget_ends_and_starts_no_trial_again(tmp_path: Path) -> None:
    arguments = (*SEARCH, *ONE_AT_ONCE, "train.max_steps=4000", "train.eval_every=50", "search.num_trials=1")
    process = start(tmp_path, "run", *arguments, "--name=budget", "tracking.report=false", "--json")
    wait_for(tmp_path, "budget", lambda sweep: sweep.trials and sweep.trials[0].steps, process)
    verb(tmp_path, "extend", "budget", "search.stop.wall_hours=0.0001")
    done = ended(tmp_path, process, status=1)  # no trial came to its end
    assert "search.stop.wall_hours=0.0001 is used up" in done.err
    (trial,) = done.document["trials"]
    assert (trial["state"], trial["attempts"]) == ("stopped", 1)
    assert 4000 > trial["steps"] > 0


def decided(folder: Path, document: dict[str, Any]) -> tuple[Any, ...]:
    """Outcome of every trial, and every decision of the scheduler in its order."""
    storage = journal(folder / "outputs" / "asha" / "optuna.log")
    events = DecisionLog(optuna.load_study(study_name="asha", storage=storage)).events
    return [
        [trial[key] for key in ("trial", "state", "steps", "value", "params")] for trial in document["trials"]
    ], events


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_extended_sweep_and_an_interrupted_one_stop_the_trials_that_an_undisturbed_one_stops(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name for name in ("undisturbed", "extended", "interrupted")]
    for folder in folders:
        folder.mkdir()
    steps = ("train.max_steps=60", "train.eval_every=4", "train.log_every=2")
    arguments = ("conf=digits", *SPACE, *steps, *ONE_AT_ONCE, "search/scheduler=asha", "--name=asha")
    undisturbed = run(folders[0], *arguments, "search.num_trials=9")
    expected = decided(undisturbed.folder, undisturbed.document)
    assert {state for _, state, *_ in expected[0]} == {"finished", "pruned"}

    run(folders[1], *arguments, "search.num_trials=3")
    extended = verb(folders[1], "extend", "asha", "search.num_trials=9", "--json")
    assert decided(folders[1], extended.document) == expected

    process = start(folders[2], "run", *arguments, "search.num_trials=9")
    for trial in (1, 4):
        wait_for(folders[2], "asha", lambda sweep, trial=trial: len(sweep.trials) > trial, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(200) == 130
        process.communicate()
        process = start(folders[2], "resume", "asha", "--json")
    assert decided(folders[2], ended(folders[2], process, within_s=300).document) == expected
