"""Command lines in the background, and what a runner makes of how they end."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import run_python
from recording import open_recorder, record_small_sweep
from sqlalchemy import Engine
from verbs import refusal
from waiting import wait_until

from sweeps.cli import run_command
from sweeps.config.service import Queue, Service
from sweeps.errors import ArtifactsUnreachable, SweepsError, TrackingUnreachable
from sweeps.files.whole_files import write_json
from sweeps.plan.plan import make_plan
from sweeps.plan.saved_sweep import save
from sweeps.service import subprocesses
from sweeps.service.clock import Clock
from sweeps.service.database.engine import open_database, writing
from sweeps.service.queue import claims, jobs, runner
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.runner import JobRunner
from sweeps.service.service_context import ServiceContext

LASTS = """
import time
print("it lasts", flush=True)
time.sleep(600)
"""
FAILS = """
import json, sys
from pathlib import Path
outcome = {"status": 2, "error": "it fails at once", "document": None}
(Path(sys.argv[1]) / "outcome.json").write_text(json.dumps(outcome))
sys.exit(2)
"""
"""Processes in place of ours, which imports for two seconds and is not the point of every test."""


def test_a_command_in_the_background_leaves_its_document_its_status_and_its_log(tmp_path: Path) -> None:
    sweep_folder = tmp_path / "sweep"
    sweep_folder.mkdir()
    process = subprocesses.start(tmp_path / "one", [["conf", "--json"], ["show", "none"], ["conf"]], sweep_folder)
    assert process is not None
    assert process.wait(60) == 2
    ended = subprocesses.outcome(tmp_path / "one")
    assert ended is not None
    assert ended.status == 2
    assert "there is no sweep 'none'" in str(ended.error)
    assert "digits" in ended.document["conf"]  # of the last command that printed one
    assert "there is no sweep 'none'" in subprocesses.log_tail(tmp_path / "one")
    assert "there is no sweep" in (sweep_folder / "driver.log").read_text()


def test_it_outlives_who_starts_it_runs_once_and_is_known_to_be_dead(tmp_path: Path) -> None:
    Path("driver.py").write_text(LASTS)
    command = ["serve", "public_url=s3cret"]
    code = f"""
from pathlib import Path
from sweeps.service import subprocesses
subprocesses.ENTRY = "driver"
print(subprocesses.start(Path({str(tmp_path / "one")!r}), [{command!r}], Path("none")).pid)
"""
    done = run_python("-c", code)
    process = psutil.Process(int(done.stdout))
    assert subprocesses.is_running(tmp_path / "one")
    assert subprocesses.start(tmp_path / "one", [command], Path("none")) is None
    assert os.getsid(process.pid) == process.pid
    wait_until(lambda: "it lasts" in subprocesses.log_tail(tmp_path / "one"))
    assert "s3cret" not in " ".join(process.cmdline())
    assert (tmp_path / "one" / "request.json").stat().st_mode & 0o077 == 0
    subprocesses.send(tmp_path / "one", signal.SIGKILL)
    wait_until(lambda: not subprocesses.is_running(tmp_path / "one"))
    assert subprocesses.outcome(tmp_path / "one") is None


class Ahead(Clock):
    """A clock that goes on at once, as while the machine sleeps, and that can be set wrong."""

    def __init__(self) -> None:
        self.ahead_s = self.set_by = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s + self.set_by

    def steady(self) -> float:
        return super().steady() + self.ahead_s


class Running:
    """A runner that is looked through by hand."""

    def __init__(self, engine: Engine, folder: Path, uri: str, restarts: int = 3, host: str | None = None) -> None:
        self.engine = engine
        self.clock = Ahead()
        self.heartbeat = Heartbeat(engine, self.clock, 30.0, host=host)
        limits = Queue(running=2, restarts=restarts)
        config = Service(queue=limits, output_dir=str(folder), tracking_uri=uri)
        self.runner = JobRunner(ServiceContext(config, engine, self.clock), self.heartbeat)

    def until(self, number: int, *states: str) -> Job:
        wait_until(lambda: (self.runner.poll(), self.find(number).state)[1] in states, 60)
        return self.find(number)

    def find(self, number: int) -> Job:
        with self.engine.connect() as connection:
            return jobs.find(connection, number)

    def submit(self, sweep: str, *overrides: str, **request: Any) -> int:
        with writing(self.engine) as connection:
            asked = Run(conf="digits", overrides=[*overrides], name=sweep, **request)
            return jobs.submit(connection, asked, sweep, user="ada", project="ada", now=1.0).id

    def start(self, *, is_stopped: bool = True, **request: Any) -> int:
        """Start the sweep ``mine``; its driver does not get far."""
        number = self.submit("mine", **request)
        wait_until(lambda: (self.runner.poll(), self.find(number).pid)[1] is not None)
        if is_stopped:
            os.kill(self.find(number).pid or 0, signal.SIGSTOP)
        return number

    def control(self, number: int) -> Path:
        return self.runner.control_folder(self.find(number))

    def kill(self, number: int) -> None:
        subprocesses.send(self.control(number), signal.SIGKILL)

    def ask_to_stop(self, number: int) -> None:
        with writing(self.engine) as connection:
            jobs.request_stop(connection, number, self.clock.now())

    def settle(self) -> None:
        """Wait until the runner has done all that it has begun."""
        wait_until(lambda: not any(state.is_busy for state in self.runner._states.values()))

    def close(self) -> None:
        self.runner.close()
        self.engine.dispose()


@pytest.fixture
def running(uri: str, tmp_path: Path) -> Iterator[Running]:
    running = Running(open_database(f"sqlite:///{tmp_path}/service.db"), tmp_path / "outputs", uri)
    yield running
    running.close()


def away(*_: object) -> None:
    raise TrackingUnreachable("MLflow does not answer")


@pytest.fixture
def _fails_at_once(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:  # ``uri`` changes the working folder
    fail_at_once(monkeypatch)


def fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drivers that are started from now on fail at once."""
    Path("driver.py").write_text(FAILS)  # in the working folder, where Python looks for modules
    monkeypatch.setattr(subprocesses, "ENTRY", "driver")


def test_a_mistake_that_only_the_driver_finds_is_the_jobs_error(running: Running) -> None:
    heard: list[Job] = []
    running.runner.when_ended = heard.append
    number = running.submit("mine", "search.num_trials=none")
    job = running.until(number, "failed")
    assert "search.num_trials='none': must be a valid integer" in str(job.error)
    wait_until(lambda: heard)
    assert heard[0].state == "failed"
    assert running.find(running.submit("mine")).sweep == "mine"  # no sweep of this name has begun


def test_a_job_of_a_backup_whose_sweep_has_ended_since_is_not_run_again(running: Running, uri: str) -> None:
    """Whether it waited or ran when the backup was made."""
    for sweep in ("waited", "ran"):
        record_small_sweep(uri, sweep)
    waited, ran = running.submit("waited"), running.submit("ran")
    running.control(waited).mkdir(parents=True)  # of its start after the backup
    running.heartbeat.beat()
    with writing(running.engine) as connection:
        own = running.heartbeat.service
        jobs.set_values(connection, ran, state="running", attempts=1, service=own, host=running.heartbeat.host)
    for number, attempts in ((waited, 0), (ran, 1)):
        job = running.until(number, *jobs.ENDED)
        assert (job.state, job.error, job.attempts) == ("finished", None, attempts)


@pytest.mark.parametrize("ended", [True, False])
def test_a_job_whose_name_was_taken_while_it_waited_says_so(running: Running, uri: str, *, ended: bool) -> None:
    number, taken = running.submit("mine"), open_recorder(uri, "mine")
    if ended:
        taken.close("finished")
    job = running.until(number, *jobs.ENDED)
    if not ended:
        taken.close("finished")
    assert (job.state, job.attempts) == ("failed", 0)
    assert "a sweep mine already exists, which this job has not started; submit it again" in str(job.error)
    with running.engine.connect() as connection:
        assert jobs.creator(connection, "mine") is None  # who submitted the job may not see somebody else's sweep


@pytest.mark.usefixtures("_fails_at_once")
def test_what_comes_before_a_start_adds_overrides_once_and_can_refuse_it_which_gives_its_name_up(
    running: Running,
) -> None:
    def prepare(job: Job) -> list[str]:
        if job.sweep == "refused":
            raise SweepsError("no champion")
        if job.sweep == "broken":
            raise ZeroDivisionError
        return ["search.num_trials=none"]

    running.runner.prepare = prepare
    numbers = [running.submit(name) for name in ("mine", "refused", "broken")]
    mine, refused, broken = (running.until(number, "failed") for number in numbers)
    assert mine.request["overrides"] == ["search.num_trials=none"]
    assert (refused.error, refused.attempts) == ("no champion", 0)
    assert broken.error == "preparing its start failed: ZeroDivisionError()"
    with running.engine.connect() as connection:
        assert jobs.creator(connection, "refused") is None  # a later sweep of this name may be somebody else's
    assert running.find(running.submit("refused")).sweep == "refused"


def test_what_is_not_allowed_any_more_does_not_start_and_does_not_go_on(running: Running) -> None:
    def judge(job: Job) -> dict[str, str]:
        if forbidden:
            raise SweepsError("model._target_=mine.build: is not among the import paths that the service allows")
        return {}

    forbidden = True
    running.runner.check = judge
    job = running.until(running.submit("mine", "search.num_trials=none"), "failed")
    assert ("is not among the import paths" in str(job.error), job.attempts) == (True, 0)
    forbidden = False
    number = running.submit("again", "search.num_trials=2")
    wait_until(lambda: (running.runner.poll(), running.find(number).pid)[1] is not None)
    forbidden = True
    os.kill(running.find(number).pid or 0, signal.SIGKILL)
    job = running.until(number, "failed")
    assert ("is not among the import paths" in str(job.error), job.attempts) == (True, 1)
    assert running.find(running.submit("again")).sweep == "again"  # it has made no sweep


@pytest.mark.usefixtures("_fails_at_once")
def test_a_start_waits_for_a_store_that_is_away(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STORE_AWAY_S", 0.5)
    asked: list[str] = []

    def prepare(job: Job) -> list[str]:
        asked.append(job.sweep)
        if len(asked) < 3:
            raise TrackingUnreachable("MLflow does not answer")
        return []

    running.runner.prepare = prepare
    job = running.until(running.submit("mine", "search.num_trials=none"), "failed")
    assert (asked, job.attempts) == (["mine"] * 3, 1)


def test_artifacts_that_cannot_be_read_are_waited_for_a_few_times_and_then_named(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STORE_AWAY_S", 0.1)
    asked: list[str] = []

    def prepare(job: Job) -> list[str]:
        asked.append(job.sweep)
        raise ArtifactsUnreachable("Unable to locate credentials")

    running.runner.prepare = prepare
    job = running.until(running.submit("mine", "search.num_trials=2"), *jobs.ENDED)
    assert (job.state, job.error, len(asked)) == ("failed", "Unable to locate credentials", 4)


@pytest.mark.parametrize("lack", [errno.ENOSPC, errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_start_for_which_the_machine_lacks_something_is_no_death_of_a_driver(
    running: Running, monkeypatch: pytest.MonkeyPatch, lack: int
) -> None:
    number = running.submit("mine", "search.num_trials=none")
    tried = list[object]()

    def start(*_: object) -> None:
        tried.append(_)
        raise OSError(lack, os.strerror(lack))

    with monkeypatch.context() as patch:
        patch.setattr(subprocesses, "start", start)
        for times in range(1, 6):
            running.runner.poll()
            running.settle()
            assert len(tried) == times
            running.clock.ahead_s += runner.STORE_AWAY_S
        assert (running.find(number).state, running.find(number).attempts) == ("running", 0)
    running.ask_to_stop(number)
    assert running.until(number, *jobs.ENDED).state == "cancelled"


def test_a_driver_that_dies_is_started_again_so_many_times(uri: str, tmp_path: Path) -> None:
    running = Running(open_database(f"sqlite:///{tmp_path}/service.db"), tmp_path / "outputs", uri, restarts=2)
    number = running.submit("mine", "search.num_trials=2")
    killed = set[int]()

    def kill() -> bool:
        running.runner.poll()
        job = running.find(number)
        if job.pid is not None and job.pid not in killed:
            killed.add(job.pid)
            os.kill(job.pid, signal.SIGKILL)
        return job.state == "failed"

    wait_until(kill, 60)
    assert len(killed) == 3
    assert "its process has died 3 times; `python -m sweeps resume mine`" in str(running.find(number).error)
    assert running.find(running.submit("mine")).sweep == "mine"  # none has made a sweep
    running.close()


@pytest.mark.parametrize(
    ("journal", "error"),
    [(None, "there is no sweep 'mine'"), ("", "its folder {folder} is not on this machine, or is incomplete")],
)
def test_a_sweep_that_mlflow_has_lost_is_looked_for_in_its_folder_and_keeps_it_when_its_driver_dies(
    uri: str, tmp_path: Path, journal: str | None, error: str
) -> None:
    outputs = tmp_path / "sweeps of the service"
    running = Running(open_database(f"sqlite:///{tmp_path}/service.db"), outputs, uri)
    number = running.start()  # in a store that knows nothing of it
    checkpoint = outputs / "mine" / "trials" / "0001" / "step-00000010" / "model"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("weights")
    if journal is not None:
        (outputs / "mine" / "tracking.jsonl").write_text(journal)
    running.kill(number)
    job = running.until(number, "failed")
    assert error.format(folder=outputs / "mine") in str(job.error)
    assert checkpoint.read_text() == "weights"
    running.close()


@pytest.mark.usefixtures("_fails_at_once")
def test_a_job_that_was_claimed_and_not_started_is_started_by_the_next_service(uri: str, tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/service.db")
    dead = Running(engine, tmp_path / "outputs", uri)
    number = dead.submit("mine", "search.num_trials=none")
    with writing(engine) as connection:
        assert claims.claim(connection, Queue(), dead.heartbeat.service, dead.heartbeat.host, 1.0) is not None
    dead.heartbeat.leave()
    new = Running(engine, tmp_path / "outputs", uri)
    job = new.until(number, "failed")
    assert (job.service, job.attempts) == (new.heartbeat.service, 1)
    dead.runner.close()
    new.runner.close()
    engine.dispose()


def test_who_cancels_a_sweep_while_it_starts_gets_that_and_its_name(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = running.start(is_stopped=False)
    running.ask_to_stop(number)
    job = running.until(number, *jobs.ENDED)
    assert (job.state, job.error) == ("cancelled", None)
    fail_at_once(monkeypatch)
    again = running.submit("mine", "search.num_trials=none")
    assert running.until(again, *jobs.ENDED).sweep == "mine"


def test_a_sweep_whose_files_cannot_be_read_does_not_keep_other_jobs_from_going_on(running: Running) -> None:
    first, other = running.submit("mine"), running.submit("other")
    own, limits = running.heartbeat, Queue(running=2)
    own.beat()
    with writing(running.engine) as connection:
        for _ in (first, other):
            assert claims.claim(connection, limits, own.service, own.host, 1.0) is not None
    for number in (first, other):
        running.ask_to_stop(number)
    unreadable = running.control(first) / subprocesses.LOCK_FILE
    unreadable.mkdir(parents=True)  # it cannot be opened, like a file on a failing disk
    assert running.until(other, *jobs.ENDED).state == "cancelled"
    assert running.find(first).state == "running"
    unreadable.rmdir()
    running.clock.ahead_s = runner.LOOK_EVERY_S
    assert running.until(first, *jobs.ENDED).state == "cancelled"


@pytest.mark.parametrize(("status", "error"), [(15, None), (2, "Ray did not start on this machine"), (1, "died")])
def test_what_a_driver_says_that_is_stopped_while_it_starts_is_no_failure(
    running: Running, status: int, error: str | None
) -> None:
    number = running.start()
    outcome = {"status": status, "error": error, "document": None}
    write_json(running.control(number) / subprocesses.OUTCOME_FILE, outcome)
    running.ask_to_stop(number)
    running.kill(number)
    job = running.until(number, *jobs.ENDED)
    assert (job.state, job.error) == ("cancelled", None)


def test_a_driver_that_mlflow_did_not_answer_is_started_again(running: Running) -> None:
    number = running.start()
    outcome = {"status": runner.TRY_AGAIN, "error": "away", "document": None}
    write_json(running.control(number) / subprocesses.OUTCOME_FILE, outcome)
    running.kill(number)
    wait_until(lambda: (running.runner.poll(), running.find(number).attempts)[1] == 2)
    running.settle()  # the start removes the earlier outcome after it has counted its attempt
    with writing(running.engine) as connection:
        jobs.set_values(connection, number, attempts=9)
    write_json(running.control(number) / subprocesses.OUTCOME_FILE, outcome)
    running.kill(number)
    assert running.until(number, "failed").error == "away"


@pytest.mark.parametrize("dies", [False, True])
def test_a_job_that_hangs_or_has_died_is_ended_by_its_limit_of_time_and_says_so(
    running: Running, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    monkeypatch.setattr(runner, "TERMINATE_AFTER_S", 0.2)
    monkeypatch.setattr(runner, "KILL_AFTER_S", 0.5)  # it is stopped, and does not hear SIGTERM
    number = running.start(max_hours=2)
    running.clock.ahead_s = 7000
    running.runner.poll()
    assert running.find(number).stop_asked is None
    if dies:
        running.kill(number)
        wait_until(lambda: not subprocesses.is_running(running.control(number)))
    running.clock.ahead_s = 7300
    job = running.until(number, *jobs.ENDED)
    assert job.state == "cancelled"  # nothing was recorded yet
    assert "its time limit was reached, 2 h after its start (queue.max_hours, max_hours" in str(job.error)


@pytest.mark.parametrize("answers", [True, False])
def test_a_sweep_that_is_stopped_has_the_time_that_its_config_gives_its_programs_also_while_mlflow_is_away(
    running: Running, uri: str, monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    monkeypatch.setattr(runner, "TERMINATE_AFTER_S", 0.2)
    monkeypatch.setattr(runner, "KILL_AFTER_S", 0.5)
    monkeypatch.setattr("sweeps.driver.stop.request_stop", lambda *_: None)
    plan = make_plan(["conf=command", "~task.checkpoints", "~task.options", "task.grace_s=300"], [], "mine", "")
    number = running.start()
    recorder = open_recorder(uri, "mine", folder=plan.folder)
    save(plan)
    running.ask_to_stop(number)
    with monkeypatch.context() as patch:
        if not answers:
            patch.setattr("sweeps.tracking.reader.load_sweep", away)
        running.runner.poll()
        running.settle()
    signals: list[signal.Signals] = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocesses, "send", lambda _, sent: signals.append(sent))
        for later_s, sent in ((290, []), (11, [signal.SIGKILL])):
            running.clock.ahead_s += later_s
            running.runner.poll()
            assert signals == sent
    assert not recorder.close("stopped")
    running.until(number, *jobs.ENDED)


def test_a_clock_that_is_wrong_for_a_moment_ends_no_job_before_its_limit_and_kills_none_that_is_stopping(
    running: Running,
) -> None:
    number = running.start(max_hours=2)
    running.clock.set_by = 30 * 86400.0
    running.runner.poll()
    assert running.find(number).stop_asked is None
    running.clock.set_by = 0.0
    running.ask_to_stop(number)
    running.runner.poll()
    running.clock.set_by = 86400.0
    running.settle()
    running.runner.poll()
    assert subprocesses.is_running(running.control(number))
    running.clock.set_by = 0.0
    running.kill(number)
    assert running.until(number, *jobs.ENDED).state == "cancelled"


@pytest.mark.usefixtures("_fails_at_once")
def test_a_start_that_waits_while_the_clock_is_a_month_ahead_is_tried_again_when_it_is_right(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.clock.set_by = 30 * 86400.0
    number = running.submit("mine", "search.num_trials=none")
    with monkeypatch.context() as patch:
        patch.setattr("sweeps.tracking.reader.load_sweep", away)
        running.runner.poll()
        running.settle()
    running.clock.set_by = 0.0
    running.clock.ahead_s = runner.STORE_AWAY_S
    assert running.until(number, "failed").attempts == 1


def test_a_driver_that_lives_and_does_not_go_on_is_killed_and_started_again(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = [1000.0]
    monkeypatch.setattr(Ahead, "steady", lambda _: steady[0])
    folder = tmp_path / "outputs" / "mine"
    number = running.start()

    def look(beat: int) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "driver.json").write_text(json.dumps({"id": "a", "machine": "here/1", "beat": beat}))
        steady[0] += 400
        running.clock.ahead_s += 400 * 86400  # a clock that is set forward does not count
        running.runner.poll()
        return running.find(number).attempts

    assert [look(beat) for beat in (1, 2, 2, 3, 3)] == [1] * 5
    look(3)
    wait_until(lambda: (running.runner.poll(), running.find(number).attempts == 2)[1])
    signals: list[signal.Signals] = []
    running.settle()
    with monkeypatch.context() as patch:
        patch.setattr(subprocesses, "send", lambda _, sent: signals.append(sent))
        patch.setattr(subprocesses, "is_running", lambda _: True)
        look(3)  # its successor takes a while to send a first one
    assert not signals
    running.ask_to_stop(number)
    running.until(number, *jobs.ENDED)


def test_a_driver_of_a_machine_that_was_suspended_is_not_killed(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = running.start()
    driver = tmp_path / "outputs" / "mine" / "driver.json"
    driver.parent.mkdir(parents=True, exist_ok=True)
    driver.write_text(json.dumps({"id": "a", "machine": "here/1", "beat": 1}))
    signals: list[signal.Signals] = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocesses, "send", lambda _, sent: signals.append(sent))
        for slept_s in (20, 3600):  # the second time, it goes on before its driver does
            running.clock.ahead_s += slept_s
            running.runner.poll()
    assert not signals
    running.ask_to_stop(number)
    running.kill(number)
    running.until(number, *jobs.ENDED)


class Elsewhere:
    """A service on a machine that is lost, with what it left: a sweep that it had claimed, and whose driver had begun
    to give signs of life; and one on another machine."""

    def __init__(self, folder: Path, uri: str, *, shared: bool) -> None:
        self.engine = open_database(f"sqlite:///{folder}/service.db")
        self.theirs = folder / ("outputs" if shared else "theirs")
        self.lost = Running(self.engine, self.theirs, uri, host="lost")
        self.here = Running(self.engine, folder / "outputs", uri, host="here")
        self.job = self.lost.submit("mine", "search.num_trials=none")
        with writing(self.engine) as connection:
            claimed = claims.claim(connection, Queue(), self.lost.heartbeat.service, "lost", 1.0)
            assert claimed is not None
            claims.begin_attempt(connection, claimed, self.lost.heartbeat.service, claimed.parsed_request)
        self.control = self.lost.runner.control_folder(claimed)
        self.control.mkdir(parents=True)
        (self.control / "lock").write_text(f"{os.getpid()}")  # a number that is somebody else's here
        (self.theirs / "mine").mkdir()
        self.give_sign(1)

    def give_sign(self, beat: int) -> None:
        (self.theirs / "mine" / "driver.json").write_text(json.dumps({"id": "a", "machine": "lost/1", "beat": beat}))

    def look_later(self, seconds: float) -> Job:
        self.here.clock.ahead_s += seconds
        self.here.runner.poll()
        self.here.settle()
        return self.here.find(self.job)

    def close(self) -> None:
        self.lost.runner.close()
        self.here.close()


@pytest.fixture(params=[True], ids=["shared"])
def both(request: pytest.FixtureRequest, uri: str, tmp_path: Path) -> Iterator[Elsewhere]:
    """Both services, which share their storage."""
    both = Elsewhere(tmp_path, uri, shared=request.param)
    yield both
    both.close()


not_shared = pytest.mark.parametrize("both", [False], indirect=True, ids=["not-shared"])


@pytest.mark.usefixtures("_fails_at_once")
def test_what_a_lost_machine_ran_goes_on_where_its_storage_is_shared(both: Elsewhere) -> None:
    both.look_later(40)  # the service is silent, and its sweep is seen for the first time
    assert both.look_later(500).host == "lost"
    both.give_sign(2)  # its driver lives
    assert both.look_later(500).host == "lost"
    assert both.look_later(500).host == "lost"
    assert both.look_later(150).host == "here"
    job = both.here.until(both.job, "failed")
    assert job.error == "it fails at once"
    assert (job.attempts, job.service) == (2, both.here.heartbeat.service)


@not_shared
def test_what_a_lost_machine_ran_ends_where_nobody_else_sees_its_storage(both: Elsewhere) -> None:
    both.look_later(40)
    assert both.look_later(601).state == "running"  # perhaps it is the clock
    job = both.look_later(31)
    assert job.state == "failed"
    assert "its machine lost has sent no heartbeat for 600 s (queue.lost_after_s)" in str(job.error)


@not_shared
def test_a_clock_that_is_set_forward_takes_no_machine_for_lost(both: Elsewhere) -> None:
    both.look_later(40)
    both.here.clock.set_by = 86400.0
    assert [both.look_later(31).state for _ in range(4)] == ["running"] * 4


def test_who_asks_for_the_end_of_what_a_lost_machine_ran_gets_it(both: Elsewhere) -> None:
    with writing(both.engine) as connection:
        jobs.request_stop(connection, both.job, 2.0)
    for _ in range(3):
        both.look_later(301)
    assert both.here.until(both.job, "cancelled", "stopped").attempts == 1


def test_while_the_store_is_away_no_machine_is_taken_for_lost(both: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    both.look_later(40)
    with monkeypatch.context() as patch:
        patch.setattr("sweeps.tracking.reader.load_sweep", away)
        both.look_later(601)
    assert [both.look_later(301).host for _ in range(3)] == ["lost", "lost", "here"]  # it is counted from now on


@pytest.mark.filterwarnings("ignore:subprocess .* is still running")  # it outlives who has typed this
def test_run_detach_answers_a_mistake_at_once_and_prints_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "--detach", "conf=digits"]
    assert "did you mean search?" in refusal(*command, "serach.x=1")
    assert capsys.readouterr().out == ""
    assert not Path("outputs").exists()
    uri = "tracking.uri=http://127.0.0.1:1"  # no server: the driver's mistake, soon
    assert run_command([*command, "--name=mine", "--json", uri]) == (0, None)
    printed = json.loads(capsys.readouterr().out)
    assert printed["sweep"] == "mine"
    control = Path(printed["log"]).parent
    wait_until(lambda: subprocesses.outcome(control), 120)
    ended = subprocesses.outcome(control)
    assert ended is not None
    assert ended.status == runner.TRY_AGAIN
