"""`resume` of a sweep that has nothing left to do, and the durations of sweeps that paused between two drivers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from processes import run_python
from recording import CONFIG, POINT, open_recorder

import sweeps
from sweeps.cli import run_command
from sweeps.constants import DURATION_METRIC, TAG_ENDED
from sweeps.driver.usage import MOST_SESSIONS, with_session
from sweeps.errors import ConfigError
from sweeps.folders.driver_lock import DRIVER_LOCK
from sweeps.plan.complete_sweep import ALL_STARTED, describe_completion, extension, is_complete
from sweeps.plan.extend import ask_driver
from sweeps.plan.plan import Plan, make_plan
from sweeps.plan.resume import as_last_saved, check_before_training, reopened
from sweeps.plan.saved_sweep import save
from sweeps.report.comparison import compare_sweeps
from sweeps.report.dataframes import trials_frame
from sweeps.report.figures.best_so_far import seconds_in
from sweeps.report.figures.timeline import bars
from sweeps.report.report_data import ReportData
from sweeps.report.terminal_tables import took
from sweeps.tracking.reader import list_sweeps, load_sweep
from sweeps.tracking.record import SweepRecord, SweepTime

RESUME = """
import json, sys
from sweeps.cli import run_command
status, _ = run_command(sys.argv[1:])
print(json.dumps({"status": status, "ray": "ray" in sys.modules}), file=sys.stderr)
"""


def recorded_sweep(
    uri: str,
    name: str,
    *tokens: str,
    planned: int,
    states: tuple[str, ...],
    status: str = "finished",
) -> Plan:
    """A sweep as its driver leaves it, without the training; of the digits, unless tokens name another conf."""
    tokens = (*(tokens or ("conf=digits",)), f"search.num_trials={planned}")
    plan = make_plan(tokens, [], name, f"python -m sweeps run --name {name}")
    plan.folder.mkdir(parents=True)
    save(plan)
    recorder = open_recorder(uri, name, folder=plan.folder)
    recorder.record_config(plan.composition.as_yaml())
    for number, state in enumerate(states):
        recorder.trials.start(f"{number:04}", POINT, CONFIG, 1)
        recorder.trials.log(f"{number:04}", 5, {"eval/loss": 1.0 + number})
        recorder.trials.end(f"{number:04}", state, 5, 1, "ValueError: no" if state == "failed" else None)
    recorder.attach({}, {TAG_ENDED: f"{planned} trials were started"})
    front: Any = [("0000", (1.0,), POINT)] if "finished" in states else []
    recorder.update({state: states.count(state) for state in states}, front, {"wall_s": 7.0, "train_s": 5.0})
    assert not recorder.close(status)
    return plan


def resume(folder: Path, *arguments: str) -> tuple[dict[str, Any], str, str]:
    """Exit status, output and messages of `resume`."""
    done = run_python("-c", RESUME, "resume", *arguments, folder=folder, status=None, within_s=100)
    *err, last = done.stderr.strip().splitlines()
    return json.loads(last), done.stdout, "\n".join(err)


def test_resume_of_a_finished_sweep_says_so_without_starting_ray_or_changing_its_record(
    uri: str, tmp_path: Path
) -> None:
    recorded_sweep(uri, "done", planned=2, states=("finished", "pruned"))
    parent = load_sweep(uri, "done").mlflow.run_id
    before = MlflowClient(uri).get_run(parent).to_dictionary()
    left, out, err = resume(tmp_path, "done", "--json")
    assert left == {"status": 0, "ray": False}
    assert json.loads(out)["status"] == "finished"
    assert "done has finished: 1 finished, 1 pruned of 2 trials. Nothing is left to resume." in err
    assert "`python -m sweeps extend done search.num_trials=4` starts 2 more trials" in err
    assert MlflowClient(uri).get_run(parent).to_dictionary() == before


def test_resume_of_a_sweep_without_a_success_leaves_with_the_status_of_its_outcome(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_sweep(uri, "lost", planned=1, states=("failed",), status="failed")
    assert run_command(["resume", "lost"])[0] == 1
    out, err = capsys.readouterr()
    assert "lost has failed: 1 failed of 1 trial" in err
    assert "if the error is fixed, `python -m sweeps extend lost search.max_retries=2` tries the failed trials" in err
    assert "failed at step 5 with eval/loss 1, and counts as no result" in out


def test_a_sweep_that_a_rule_ended_names_the_rule_and_how_to_go_on(uri: str) -> None:
    plan = recorded_sweep(uri, "ruled", planned=9, states=("finished",))
    found = load_sweep(uri, "ruled")
    assert not is_complete(found, plan)
    for ended, change in {
        "search.stop.target=0.02 is reached": "search.stop.target=null",
        "4 trials have not improved on the best (search.stop.plateau)": "search.stop.plateau=null",
        "search.stop.wall_hours=1.5 is used up": "search.stop.wall_hours=3",
        "search.stop.cost.limit=5 is used up": "search.stop.cost.limit=10",
    }.items():
        record = replace(found, tags=found.tags | {TAG_ENDED: ended})
        assert is_complete(record, plan)
        text = describe_completion(record, plan)
        assert f"1 finished of 9 trials ({ended})" in text
        assert f"`python -m sweeps extend ruled {change}`" in text
    none = "none of 10,000 random points can be trained; the last that was tried: search.constraints.0"
    assert not is_complete(replace(found, tags=found.tags | {TAG_ENDED: none}), plan), "resume draws others"


def test_a_sweep_of_every_point_is_extended_by_a_wider_range_and_its_points_are_recorded(uri: str) -> None:
    recorder = open_recorder(uri, "grid")
    recorder.record_config("search: {num_trials: 16}", 3, 3)
    assert not recorder.close("finished")
    found = load_sweep(uri, "grid")
    assert (found.planned, found.points) == (3, 3)
    assert extension("3 trials were started", 3, found.points)[0] == "space.PATH.high=VALUE"
    assert extension("2 trials were started", 2, found.points) == ("search.num_trials=3", "starts 1 more trial")


def test_a_sweep_with_something_left_to_do_is_not_complete(uri: str) -> None:
    plan = recorded_sweep(uri, "done", planned=1, states=("finished",))
    record = load_sweep(uri, "done")
    assert is_complete(record, plan)
    assert not is_complete(replace(record, status="interrupted"), plan)
    assert not is_complete(record, reopened(record, {"search.num_trials": 3}))  # extended, and its driver died at once
    with (plan.folder / "tracking.jsonl").open("a", encoding="utf-8") as journal:
        journal.write('{"kind": "Artifact", "key": "0000", "name": "checkpoints/last", "text": null, "folder": "/x"}\n')
    assert not is_complete(record, plan)
    (plan.folder / "tracking.position").write_text(str((plan.folder / "tracking.jsonl").stat().st_size))
    assert not is_complete(record, plan)  # the entry was passed on, and the copy never made


def test_python_s_resume_of_a_finished_sweep_returns_it(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    recorded_sweep(uri, "done", planned=1, states=("finished",))
    assert sweeps.resume("done", tracking_uri=uri).status == "finished"
    assert "Nothing is left to resume" in capsys.readouterr().err


# --- code and data that are gone --------------------------------------------------------------------------------

FUNCTION = ("conf=ray_train_function", "~space", "task._target_=mine.train", "task.arguments.lr=interval(0.1,0.5)")
TABLE = ("conf=tabular", "data.path=rows.csv", "data.target=y", "task=classification")


def write_code_and_data(folder: Path) -> None:
    (folder / "mine.py").write_text("def train(config):\n    print(config)\n", encoding="utf-8")
    (folder / "rows.csv").write_text("x,y\n" + "1,a\n2,b\n" * 8, encoding="utf-8")


@pytest.mark.parametrize(
    ("verb", "tokens", "file", "code", "message"),
    [
        (("resume", "mine"), FUNCTION, "mine.py", "def trian(config):\n    pass\n", "did you mean trian?"),
        (("resume", "mine"), TABLE, "rows.csv", None, "data.path=rows.csv: there are no such files"),
        (("extend", "mine", "search.num_trials=4"), TABLE, "rows.csv", "x,z\n1,a\n", "data.target=y: "),
    ],
)
def test_a_mistake_in_code_or_data_is_found_before_a_trial_continues_as_before_a_sweep_begins(
    uri: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    verb: tuple[str, ...],
    tokens: tuple[str, ...],
    file: str,
    code: str | None,
    message: str,
) -> None:
    write_code_and_data(tmp_path)
    plan = recorded_sweep(uri, "mine", *tokens, planned=2, states=("finished", "stopped"), status="interrupted")
    (tmp_path / file).unlink()
    if code is not None:
        (tmp_path / file).write_text(code, encoding="utf-8")
    (plan.folder / DRIVER_LOCK).touch()  # which the refused driver holds
    before = load_sweep(uri, "mine"), files_of(plan.folder)
    assert run_command(["run", *tokens, "--dry-run"])[0] == 2
    refused = capsys.readouterr().err
    assert message in refused
    assert run_command(verb)[0] == 2
    assert capsys.readouterr().err == refused
    assert (load_sweep(uri, "mine"), files_of(plan.folder)) == before


def files_of(folder: Path) -> list[tuple[Path, bytes]]:
    return sorted((each, each.read_bytes()) for each in folder.rglob("*") if each.is_file())


def test_code_and_data_may_be_gone_if_nothing_is_left_to_train(uri: str, tmp_path: Path) -> None:
    write_code_and_data(tmp_path)
    states = ("finished", "failed", "pruned")
    recorded_sweep(uri, "mine", *FUNCTION, planned=3, states=states, status="interrupted")
    (tmp_path / "mine.py").unlink()
    record = load_sweep(uri, "mine")
    plan = reopened(record, {})
    check_before_training(plan)
    running = [replace(each, state="running") for each in record.trials]
    check_before_training(replace(plan, record=replace(record, trials=running)))  # MLflow has not received the ends
    check_before_training(replace(plan, record=replace(record, trials=[])))  # or has lost the sweep
    with pytest.raises(ConfigError, match=r"task._target_=mine\.train"):
        check_before_training(replace(plan, composition=plan.composition.changed({"search.num_trials": 4})))
    with pytest.raises(ConfigError, match=r"task._target_=mine\.train"):
        check_before_training(replace(plan, composition=plan.composition.changed({"search.confirm": 2})))


# --- durations --------------------------------------------------------------------------------------------------


def paused_sweep(uri: str, monkeypatch: pytest.MonkeyPatch) -> SweepRecord:
    """Two sessions of 20 s with ten minutes between them; one trial in each, and one that spans the pause."""
    began, clock = time.time() - 2000, [0.0]
    monkeypatch.setattr("sweeps.tracking.values.time.time", lambda: began + clock[0])
    first = ((began, began + 20),)
    recorder = open_recorder(uri, "paused")
    clock[0] = 5
    recorder.trials.start("0000", POINT, CONFIG, 1)
    recorder.trials.start("0001", POINT, CONFIG, 1)
    clock[0] = 15
    recorder.trials.log("0000", 5, {"eval/loss": 1.0})
    recorder.trials.end("0000", "finished", 5, 1)
    recorder.update({"finished": 1}, [("0000", (1.0,), POINT)], {"wall_s": 20.0, "sessions": first})
    clock[0] = 20
    assert not recorder.close("interrupted")
    clock[0] = 620
    recorder = open_recorder(uri, "paused", resume=True)
    recorder.trials.start("0001", POINT, CONFIG, 2)
    clock[0] = 630
    recorder.trials.log("0001", 5, {"eval/loss": 0.5})
    recorder.trials.end("0001", "finished", 5, 2)
    both = (*first, (began + 620, began + 640))
    recorder.update({"finished": 2}, [("0001", (0.5,), POINT)], {"wall_s": 40.0, "sessions": both})
    clock[0] = 640
    assert not recorder.close("finished")
    monkeypatch.undo()
    return load_sweep(uri, "paused")


def test_a_pause_between_two_drivers_is_part_of_no_duration(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = paused_sweep(uri, monkeypatch)
    other = replace(record, sweep="other")
    assert record.time.wall_s == 40
    assert next(each.wall_s for each in list_sweeps(uri)) == 40
    whole, spanning = record.trials
    assert record.took(whole) == pytest.approx(10, abs=0.1)
    assert took(record, spanning) == "25s"  # 15 s before the pause, 10 s after
    compared = compare_sweeps([record, other], lambda _: None).sweeps[0]
    assert [point.seconds for point in compared.curve] == pytest.approx([15, 30], abs=0.1)
    assert list(trials_frame([record])["seconds"]) == pytest.approx([10, 25], abs=0.1)
    material = ReportData(record=record)
    assert [seconds_in(material, trial) for trial in record.trials] == pytest.approx([15, 30], abs=0.1)
    assert max(bar.ended for bar in bars(material)) == pytest.approx(30, abs=0.1)


def test_mlflow_has_the_running_time_as_a_metric_beside_its_own_duration(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = paused_sweep(uri, monkeypatch)
    points = MlflowClient(uri).get_metric_history(record.mlflow.run_id, DURATION_METRIC)
    assert [(point.step, point.value) for point in points] == [(1, 20.0), (2, 40.0)]


def test_a_trial_that_runs_has_taken_the_time_until_now() -> None:
    now = time.time()
    record: Any = SweepRecord.__new__(SweepRecord)
    record.__dict__.update(
        status="running", started=now - 700, time=SweepTime(sessions=((now - 700, now - 650), (now - 50, now - 20)))
    )
    trial: Any = type("Trial", (), {"started": now - 660, "ended": None})()
    assert record.took(trial) == pytest.approx(60, abs=1)  # what its driver last wrote is 20 s old


def test_the_sessions_of_a_sweep_that_was_resumed_very_often_fit_a_tag() -> None:
    sessions: tuple[tuple[float, float], ...] = ()
    for number in range(3 * MOST_SESSIONS):
        sessions = with_session(sessions, 1.7e9 + 100 * number, 1.7e9 + 100 * number + 10.5)
    assert len(sessions) == MOST_SESSIONS
    assert len(json.dumps(sessions)) < 7000
    assert sum(ended - began for began, ended in sessions) == pytest.approx(3 * MOST_SESSIONS * 10.5, abs=1)


def test_more_choices_for_a_running_sweep_than_a_request_holds_are_refused_without_its_driver(
    uri: str, tmp_path: Path
) -> None:
    recorder = open_recorder(uri, folder=tmp_path)
    choices = {"space.task.arguments.file.choices": [f"part-{number:06}.parquet" for number in range(500)]}
    with pytest.raises(ConfigError, match=r"file\.choices: cannot be changed while the sweep runs"):
        ask_driver(load_sweep(uri, "digits-1"), tmp_path, choices)
    recorder.close("finished")


def test_extending_to_what_a_complete_sweep_has_is_refused_unless_another_value_changes(uri: str) -> None:
    recorded_sweep(uri, "done", planned=1, states=("finished",))
    record, same = load_sweep(uri, "done"), {"search.num_trials": 1}
    with pytest.raises(
        ConfigError, match=r"search\.num_trials=1: already has this value, and done has ended with 1 trial;"
    ):
        reopened(record, same)
    reopened(record, {**same, "search.max_retries": 3})
    reopened(replace(record, status="interrupted"), same)


def test_a_sweep_that_was_extended_while_a_resume_waited_for_its_driver_stays_extended(uri: str) -> None:
    recorded_sweep(uri, "done", planned=3, states=("finished",), status="interrupted")
    record = load_sweep(uri, "done")
    waits, extends = reopened(record, {}), reopened(record, {"search.max_retries": 7})
    assert as_last_saved(waits) is waits
    save(reopened(record, {"search.num_trials": 5}))
    assert as_last_saved(waits).config.search.num_trials == 5
    search = as_last_saved(extends).config.search
    assert (search.num_trials, search.max_retries) == (5, 7)


@pytest.mark.parametrize("reason", ["1 trial was started", "16 trials were started", "1,200 trials were started"])
def test_that_all_trials_were_started_is_no_rule_that_ended_the_search(reason: str) -> None:
    assert ALL_STARTED.match(reason)
