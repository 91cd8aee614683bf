"""Cleaning removes checkpoints everywhere, and keeps the best and the registered ones whatever is asked."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow import MlflowClient
from recording import held, open_recorder, record_with_checkpoints
from records import sweep_record, trial_record
from stores import RecordedStore

from sweeps.cleaning.cleaning import clean, keep_only_the_best, plan_cleaning
from sweeps.cleaning.policy import Policy, describe_size, parse_age, parse_size
from sweeps.cleaning.selection import select
from sweeps.cli import run_command
from sweeps.constants import TAG_BEST_TRIAL
from sweeps.driver.finish import finish
from sweeps.errors import ConfigError, SweepsError, UserError
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.plan.lost_record import record_to_resume
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import MlflowIds, SweepRecord
from sweeps.tracking.sweep_run import PARENT_FILE

DAY = 86400.0
NOW = 1000 * DAY


def random_sweep(draw: random.Random, name: str) -> SweepRecord:
    started = NOW - draw.uniform(0, 100) * DAY
    trials = []
    for number in range(draw.randint(0, 8)):
        state = draw.choice(["finished", "pruned", "failed", "stopped", "running"])
        value = draw.choice([None, draw.random(), 0.5, float("nan"), float("inf")])
        ended = None if state == "running" else started + draw.uniform(0, 5) * DAY
        trials.append(
            trial_record(
                *(number, value, state),
                violation=draw.choice([None, None, "too large"]),
                run_id=f"{name}-{number}",
                started=started,
                ended=ended,
            )
        )
    return sweep_record(
        sweep=name,
        status=draw.choice(["running", "finished", "stopped", "failed", "interrupted"]),
        metrics=("loss",),
        modes=(draw.choice(["min", "max"]),),
        front=draw.sample(trials, 1) if trials and draw.random() < 0.3 else [],
        mlflow=MlflowIds(tracking_uri="", experiment_id="", run_id=name),
        trials=trials,
        started=started,
    )


def best_value(record: SweepRecord) -> float | None:
    """Best value among the trials that can be the best, as the sweep itself computes it."""
    values = [
        trial.value
        for trial in record.trials
        if trial.value is not None and math.isfinite(trial.value) and trial.state != "failed" and not trial.violation
    ]
    return (min if record.mode == "min" else max)(values, default=None)


def test_what_must_stay_is_never_chosen_whatever_is_asked() -> None:
    for seed in range(600):
        check_one_case(random.Random(seed))


def check_one_case(draw: random.Random) -> None:
    records = [random_sweep(draw, f"s{index}") for index in range(draw.randint(1, 6))]
    runs = [trial.run_id for record in records for trial in record.trials]
    sizes = {run: draw.randint(0, 100) for run in runs if draw.random() < 0.8}
    needed = set(draw.sample(runs, len(runs) // 5))
    policy = Policy(
        keep_best=draw.randint(1, 3),
        keep_last=draw.choice([0, 0, 1, 3]),
        older_than_s=draw.choice([None, 30 * DAY]),
        max_size=draw.choice([None, 0, 50, 200]),
        runs=draw.random() < 0.5,
        unfinished=draw.random() < 0.5,
    )
    removals = select(records, sizes, needed, policy, (), NOW)

    gone = {each.trial.run_id for each in removals}
    assert len(gone) == len(removals)
    assert not gone & needed
    newest = sorted(records, key=lambda record: -record.started)[: policy.keep_last]
    for record in records:
        left = [trial for trial in record.trials if trial.run_id not in gone]
        assert best_value(replace(record, trials=left)) == best_value(record)
        assert all(trial in left for trial in record.front)
        assert all(trial in left for trial in record.trials if trial.state == "running")
        continues = [trial for trial in record.trials if trial.state == "stopped"]  # when its budget is raised
        assert policy.unfinished or all(trial in left for trial in continues)
        untouched = record.status == "running" or record in newest
        untouched |= record.status in ("stopped", "interrupted") and not policy.unfinished
        untouched |= policy.older_than_s is not None and NOW - record.started < policy.older_than_s
        assert left == record.trials or not untouched
    if policy.max_size is not None:
        without = select(records, sizes, needed, replace(policy, max_size=None), (), NOW)
        remaining = sum(sizes.values()) - sum(each.size for each in removals)
        assert remaining <= policy.max_size or len(removals) == len(without)
        if removals:  # no more than necessary
            assert remaining + removals[-1].size > policy.max_size


def test_of_a_sweep_that_was_stopped_in_its_stages_the_best_trial_of_the_latest_one_stays() -> None:
    values = {1: [0.1, 0.2], 2: [0.6, 0.4, None]}
    staged = [
        trial_record(10 * stage + index, value, "stopped" if value is None else "finished", stage=stage)
        for stage, each in values.items()
        for index, value in enumerate(each)
    ]
    record = sweep_record(status="stopped", metrics=("loss",), modes=("min",), trials=[], staged=staged)
    sizes = {trial.run_id: 1 for trial in staged}
    removals = select([record], sizes, (), Policy(unfinished=True), (), NOW)
    assert {each.trial.trial for each in removals} == {trial.trial for trial in staged if trial.value != 0.4}


def test_recorded_best_trials_stay_also_where_a_restored_store_has_lost_their_values() -> None:
    trials = [trial_record(number, value) for number, value in enumerate([None, 0.2, None, 0.1])]
    tags = {TAG_BEST_TRIAL: '["0000", "0002"]'}
    record = sweep_record(status="finished", metrics=("loss",), modes=("min",), trials=trials, front=[], tags=tags)
    removals = select([record], {trial.run_id: 1 for trial in trials}, (), Policy(), (), NOW)
    assert [each.trial.trial for each in removals] == ["0001"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    return RecordedStore(tmp_path_factory.mktemp("sweeps"), lambda uri: record_with_checkpoints(uri, "old", "new"))


@pytest.fixture
def store(recorded: RecordedStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two sweeps that have ended: each with four trials that hold checkpoints, the third of them the best."""
    monkeypatch.chdir(recorded.folder)
    return recorded.restore()


ALL, NONE = (True, True, True), (False, False, False)


def test_checkpoints_go_from_storage_and_mlflow_and_the_rest_of_the_trial_stays(store: str) -> None:
    planned = plan_cleaning(store, ["old"], Policy())
    assert held(store, "old") == dict.fromkeys(("0000", "0001", "0002", "0003"), ALL)  # only planned so far
    assert {each.trial.trial for each in planned.removals} == {"0000", "0001", "0003"}
    assert planned.freed >= 3 * 2000
    clean(store, planned)
    assert held(store, "old") == {"0000": NONE, "0001": NONE, "0002": ALL, "0003": NONE}
    assert held(store, "new") == dict.fromkeys(("0000", "0001", "0002", "0003"), ALL)
    assert (Path("outputs") / "old" / "trials" / "0000" / "reports.jsonl").is_file()
    assert load_sweep(store, "old").trials[0].value == 0.4
    assert plan_cleaning(store, ["old"], Policy()).removals == []


def test_the_files_of_a_trials_program_go_with_its_checkpoints(store: str) -> None:
    trials = Path("outputs") / "old" / "trials"
    folders = [trials / name / "program" for name in ("0000", "0001/lineage-1", "0002")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "log.csv").write_bytes(b"x" * 100_000)
    planned = plan_cleaning(store, ["old"], Policy())
    assert planned.freed >= 200_000
    clean(store, planned)
    assert [folder.exists() for folder in folders] == [False, False, True]  # 0002 is the best
    assert plan_cleaning(store, ["old"], Policy()).removals == []


def test_a_registered_models_run_stays_and_runs_are_deleted_softly(store: str) -> None:
    client = MlflowClient(store)
    worst = load_sweep(store, "old").trials[0].run_id
    client.create_registered_model("model")
    client.create_model_version("model", f"runs:/{worst}/checkpoints/best", worst)
    gone = clean(store, plan_cleaning(store, ["old"], Policy(runs=True)))
    assert {each.trial.trial for each in gone} == {"0001", "0003"}
    assert [trial.trial for trial in load_sweep(store, "old").trials] == ["0000", "0002"]
    assert client.get_run(gone[0].trial.run_id).info.lifecycle_stage == "deleted"
    assert held(store, "old") == {"0000": ALL, "0002": ALL}


@pytest.mark.parametrize("removed", [False, True], ids=["deleted", "removed by mlflow gc"])
def test_a_best_run_that_a_user_has_deleted_in_mlflow_does_not_end_the_cleaning(store: str, removed: bool) -> None:
    best = load_sweep(store, "old").best
    assert best is not None
    client = MlflowClient(store)
    client.delete_run(best.run_id)
    if removed:
        client._tracking_client.store._hard_delete_run(best.run_id)  # as `mlflow gc` does
    assert len(clean(store, plan_cleaning(store, ["old"], Policy()))) == 3
    assert len(clean(store, plan_cleaning(store, [], Policy(max_size=0)))) == 3
    assert (Path("outputs") / "old" / "trials" / "0002" / "step-00000010").is_dir()


@pytest.mark.parametrize(
    "tags",
    [
        {"sweeps.state": "running", "sweeps.heartbeat": "99999999999"},
        {"sweeps.state": "interrupted"},
        {"sweeps.state": "stopped"},
    ],
    ids=lambda tags: tags["sweeps.state"],
)
def test_a_sweep_that_has_gone_on_meanwhile_stays_for_its_resumption(store: str, tags: dict[str, str]) -> None:
    planned = plan_cleaning(store, ["old"], Policy())
    parent = load_sweep(store, "old").mlflow.run_id
    for name, value in tags.items():
        MlflowClient(store).set_tag(parent, name, value)
    assert clean(store, planned) == []
    assert held(store, "old") == dict.fromkeys(("0000", "0001", "0002", "0003"), ALL)


@pytest.mark.parametrize("silent_s", [61, 3601])
def test_a_sweep_on_another_machine_is_not_cleaned_before_its_driver_is_certainly_dead(
    store: str, caplog: pytest.LogCaptureFixture, silent_s: int
) -> None:
    """The clocks of the two may differ."""
    client, record = MlflowClient(store), load_sweep(store, "old")
    client.set_tag(record.mlflow.run_id, "sweeps.state", "running")
    client.set_tag(record.mlflow.run_id, "sweeps.heartbeat", str(time.time() - silent_s))
    client.set_tag(record.mlflow.run_id, "sweeps.folder", "/elsewhere/old")
    done = clean(store, plan_cleaning(store, ["old"], Policy(unfinished=True)))
    assert len(done) == (3 if silent_s > 3600 else 0)
    assert ("old stays: its folder is not on this machine, and its driver may still run" in caplog.text) == (not done)


def test_a_checkpoint_that_a_running_sweep_removes_meanwhile_does_not_end_the_cleaning(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Path("outputs", "new", "trials", "0000", "step-00000010", "optimizer").absolute()
    part.mkdir()
    (part / "state.bin").write_bytes(b"x")
    listing = os.scandir

    def removed_meanwhile(path: Any) -> Any:
        if isinstance(path, str | Path) and Path(path).absolute() == part:
            shutil.rmtree(part)
        return listing(path)

    monkeypatch.setattr(os, "scandir", removed_meanwhile)
    assert {each.trial.trial for each in plan_cleaning(store, ["old"], Policy()).removals} == {"0000", "0001", "0003"}
    assert plan_cleaning(store, ["old"], Policy(max_size=0)).size >= 8 * 1000
    assert not part.exists()


@pytest.mark.parametrize("is_of_a_later_release", [False, True])
def test_a_sweep_whose_storage_cannot_be_read_stays_and_the_others_are_cleaned_unless_it_is_named(
    store: str, caplog: pytest.LogCaptureFixture, *, is_of_a_later_release: bool
) -> None:
    if is_of_a_later_release:
        (Path("outputs") / "old" / SWEEP_FILE).write_text(json.dumps({"name": "old", "version": 99}), encoding="utf-8")
    else:
        run = load_sweep(store, "old").mlflow.run_id
        MlflowClient(store).set_tag(run, "sweeps.folder", "unknown://bucket/sweeps/old")
    planned = plan_cleaning(store, [], Policy())
    assert "old stays: its storage cannot be read: " in caplog.text
    assert {each.record.sweep for each in clean(store, planned)} == {"new"}
    with pytest.raises(UserError, match="old: its storage cannot be read, so nothing is removed: "):
        plan_cleaning(store, ["old", "new"], Policy())
    keep_only_the_best(store, "old", 2)
    assert "`python -m sweeps clean old --keep-best 2` removes them" in caplog.text


def test_the_storage_of_a_sweep_that_stays_anyway_is_not_read_unless_its_size_is_needed(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A team's server would answer a request for every checkpoint of everybody."""
    size = plan_cleaning(store, ["old"], Policy()).size
    MlflowClient(store).set_tag(load_sweep(store, "new").mlflow.run_id, "sweeps.folder", "unknown://bucket/sweeps/new")
    planned = plan_cleaning(store, [], Policy(keep_last=1))
    assert ({each.record.sweep for each in planned.removals}, planned.size, caplog.text) == ({"old"}, size, "")
    plan_cleaning(store, [], Policy(keep_last=1, max_size=10**9))
    assert "new stays: its storage cannot be read: " in caplog.text


@pytest.mark.parametrize(("file", "content"), [(SWEEP_FILE, {"name": "else"}), (PARENT_FILE, {"started_ms": 1})])
def test_another_sweeps_folder_is_never_touched(store: str, file: str, content: dict[str, Any]) -> None:
    (Path("outputs") / "old" / file).write_text(json.dumps(content), encoding="utf-8")
    clean(store, plan_cleaning(store, ["old"], Policy()))
    assert held(store, "old")["0000"] == (True, False, False)


def test_the_size_decides_how_much_goes_the_oldest_and_worst_first(store: str) -> None:
    whole = plan_cleaning(store, [], Policy(max_size=10**9))
    assert whole.removals == []
    some = plan_cleaning(store, [], Policy(max_size=whole.size - 1))
    assert [(each.record.sweep, each.trial.trial) for each in some.removals] == [("old", "0000")]


def test_a_sweep_may_keep_its_best_trials_alone(store: str) -> None:
    keep_only_the_best(store, "new", 2)
    assert held(store, "new") == {"0000": NONE, "0001": NONE, "0002": ALL, "0003": ALL}


def test_a_driver_goes_on_with_its_own_sweep_and_cleans_that_alone_if_another_user_has_one_of_the_same_name(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each may see only its own experiment, until an admin gives them more permissions."""
    client, others = MlflowClient(store), load_sweep(store, "old")
    client.delete_run(others.mlflow.run_id)  # as if it could not be seen
    own = open_recorder(store, "old", folder=tmp_path, experiment="own")
    assert not own.close("stopped")
    client.restore_run(others.mlflow.run_id)

    again = open_recorder(store, "old", folder=tmp_path, experiment="own", resume=True)
    assert again.ids == own.ids
    assert not again.close("finished")
    plan: Any = SimpleNamespace(name="old", folder=tmp_path)
    tracking, checkpoint = SimpleNamespace(uri=store, report=False), SimpleNamespace(trials=1)
    plan.config = SimpleNamespace(tracking=tracking, checkpoint=checkpoint)
    assert finish(plan).mlflow == own.ids
    assert record_to_resume(store, "old", tmp_path).mlflow == own.ids
    assert caplog.text == ""
    assert held(store, "old") == dict.fromkeys(("0000", "0001", "0002", "0003"), ALL)
    assert load_sweep(store, "old") == others
    assert "2 sweeps are named old, in the experiments digits, own; this is about the one that " in caplog.text

    client.delete_run(own.ids.run_id)
    with pytest.raises(SweepsError, match="its run in MLflow was deleted meanwhile"):
        finish(plan)
    with pytest.raises(UserError, match=r"has no readable sweep\.json"):  # else it names the run to restore
        record_to_resume(store, "old", tmp_path)
    with sqlite3.connect(store.removeprefix("sqlite:///")) as database:  # MLflow has lost it
        database.execute("UPDATE tags SET value = 'gone' WHERE run_uuid = ?", (own.ids.run_id,))
    new = open_recorder(store, "old", folder=tmp_path, experiment="own", resume=True)
    assert not new.close("finished")
    assert finish(plan).mlflow == new.ids != others.mlflow
    assert held(store, "old") == dict.fromkeys(("0000", "0001", "0002", "0003"), ALL)


def test_the_command_says_what_would_go_and_what_went(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*arguments: str, status: int = 0) -> tuple[str, str]:
        assert run_command(["clean", *arguments])[0] == status
        return capsys.readouterr()

    out, err = call("--older-than=0m", "--keep-last=1", "--dry-run")
    assert err == ""
    assert "the best: 0002" in out
    assert "Nothing was removed." in out
    out, _ = call("--keep-last=1", "--json")
    document: dict[str, Any] = json.loads(out)
    assert document["done"] is True
    assert {each["sweep"] for each in document["removed"]} == {"old"}
    assert sorted(each["trial"] for each in document["removed"]) == ["0000", "0001", "0003"]
    assert "name what to remove" in call(status=2)[1]
    assert "--older-than=soon" in call("--older-than=soon", status=2)[1]
    assert "did you mean old" in call("olt", status=2)[1]


def test_ages_and_sizes_are_read_and_mistakes_named() -> None:
    assert [parse_age(text) for text in ("90m", "12h", "30d", "2w")] == [5400, 43200, 30 * DAY, 14 * DAY]
    assert [parse_size(text) for text in ("50GiB", "1.5 MB", "7B", "0", "1000000")] == [
        50 * 2**30,
        1_500_000,
        7,
        0,
        1_000_000,
    ]
    assert [describe_size(size) for size in (12, 2048, 50 * 2**30)] == ["12 B", "2.0 KiB", "50.0 GiB"]
    mistakes = ((parse_age, "30"), (parse_age, "d"), (parse_size, "50 G"), (parse_size, "50"), (parse_size, "-1"))
    for read, text in mistakes:
        with pytest.raises(ConfigError, match=text):
            read(text)
