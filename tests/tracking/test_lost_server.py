"""A tracking server or a folder that is not there, dies, or hangs."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mlflow import MlflowClient
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT
from postgres import FOLDER, PASSWORD, Postgres
from recording import CONFIG, POINT, Server, artifact_files, history, one_trial, open_recorder
from small_http import Handler, serving_http
from sqlalchemy.exc import OperationalError
from waiting import wait_until

from sweeps.cli import run_command
from sweeps.constants import TAG_ANSWER, TAG_REQUEST
from sweeps.errors import ClusterLost, TrackingUnreachable, UserError
from sweeps.tracking import client, control_channel, retry
from sweeps.tracking.artifact_uploader import ANSWER_WITHIN_S
from sweeps.tracking.client import check_port, request_limits
from sweeps.tracking.control_channel import Request, RequestListener, _Channel, send_request
from sweeps.tracking.reader import fetch_sweep, list_sweeps, load_sweep
from sweeps.tracking.record import MlflowIds
from sweeps.tracking.retry import Retrier


def test_an_unreachable_server_is_named_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    databases = (f"postgresql://me:{each}@127.0.0.1:{port}/mlflow" for each in ("secret", "a/secret"))
    for uri in (f"http://127.0.0.1:{port}", *databases):
        for ask in (list_sweeps, open_recorder):
            started = time.monotonic()
            with pytest.raises(TrackingUnreachable, match=rf"tracking\.uri=.*:{port}.*refused") as caught:
                ask(uri)
            assert time.monotonic() - started < 6
            assert "secret" not in str(caught.value)


def test_a_database_is_reached_through_its_socket_in_a_folder(postgres: Postgres) -> None:
    """As in Cloud SQL's containers, where nothing listens on a port of the machine."""
    folder = Path(os.environ[FOLDER])
    port = (folder / "port").read_text()
    check_port(f"postgresql+psycopg://sweeps:{PASSWORD}@/postgres?host={folder}&port={port}")
    with pytest.raises(OperationalError, match="No such file"):
        check_port(f"postgresql+psycopg://sweeps:{PASSWORD}@/postgres?host={folder}/none&port={port}")


class BreaksOff(Handler):
    """A server that is killed while it answers with a page of runs."""

    def answer(self) -> None:
        experiments = {"experiments": [{"experiment_id": "1", "name": "sweeps"}]}
        text = json.dumps({} if "runs" in self.path else experiments).encode()
        length = str(len(text) + 1000 * ("runs" in self.path))
        self.send(200, text, {"Content-Type": "application/json", "Content-Length": length})


def test_a_server_that_breaks_off_its_answer_counts_as_away() -> None:
    with (
        serving_http(BreaksOff) as uri,
        pytest.raises(TrackingUnreachable, match=r"tracking\.uri=.*does not answer: .*IncompleteRead"),
    ):
        list_sweeps(uri)


class Restarts(Handler):
    """A server that a proxy reports as away at first, or that refuses the user."""

    first: ClassVar[int] = 503
    requests: ClassVar[list[str]] = []

    def answer(self) -> None:
        self.requests.append(self.path)
        if len(self.requests) <= 3:
            self.send(self.first, b"by the proxy")
        else:
            self.send(200, b"{}", {"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("verb", "first"),
    [(["resume", "mine"], 503), (["run", "conf=digits", "--name=mine", "--resume"], 503), (["resume", "mine"], 401)],
)
def test_a_job_that_a_scheduler_starts_again_waits_for_mlflow_but_not_for_a_person(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, verb: list[str], first: int
) -> None:
    """Such a job ends for good with the status of a mistake."""
    monkeypatch.setenv(client.PATIENCE, "120")
    monkeypatch.setattr(client, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(Restarts, "first", first)
    monkeypatch.setattr(Restarts, "requests", [])
    Path("outputs/mine/trials").mkdir(parents=True)  # a search that has begun
    with serving_http(Restarts) as uri:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        status, message = run_command(verb)
    assert status == 2
    assert ("there is no sweep 'mine'" in str(message)) is (first == 503), message
    assert ("error code 401" in str(message)) is (first == 401), message
    assert ("waiting up to 120 s" in caplog.text) is (first == 503)


@pytest.fixture
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of requests by thread, without ones of the environment."""
    client._limit_requests_by_thread()
    for variable in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("_limits")
def test_limits_of_requests_are_of_one_thread_and_the_users_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with request_limits(8), ThreadPoolExecutor(1) as other:
        assert (MLFLOW_HTTP_REQUEST_TIMEOUT.get(), MLFLOW_HTTP_REQUEST_MAX_RETRIES.get()) == ((5, 8), 0)
        assert other.submit(MLFLOW_HTTP_REQUEST_TIMEOUT.get).result() == 120
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
        assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 77


@pytest.mark.usefixtures("_limits")
def test_a_slow_server_is_given_more_time_with_each_repetition_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    limits: list[float] = []

    def answers_within_70_s() -> None:
        limits.append(MLFLOW_HTTP_REQUEST_TIMEOUT.get()[1])
        if limits[-1] < 70:
            raise TimeoutError

    Retrier("http://127.0.0.1", "writing").call(answers_within_70_s, timeout_s=20)
    assert limits == [20, 40, 80]


def test_a_call_that_fails_while_the_end_of_ray_is_handled_names_its_own_cause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    causes: list[Exception] = [OSError("no folder for temporary files")]

    def fails_once() -> None:
        if causes:
            raise causes.pop()

    def ends() -> None:
        try:
            raise ClusterLost("digits-1", "its process raylet has ended")
        finally:
            Retrier("http://127.0.0.1", "writing").call(fails_once)

    with pytest.raises(ClusterLost):
        ends()
    assert "writing at http://127.0.0.1 fails (no folder for temporary files)" in caplog.messages[0]


def test_the_answer_to_a_request_from_before_an_outage_does_not_count_as_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    retrier, attempts = Retrier("http://127.0.0.1", "writing"), itertools.count(1)
    sent, answered = threading.Semaphore(0), threading.Semaphore(0)

    def slow() -> None:
        sent.release()
        answered.acquire()

    def fails_twice() -> None:
        attempt = next(attempts)
        if attempt == 2:
            answered.release()
            earlier.join()
        if attempt < 3:
            raise TimeoutError

    earlier = threading.Thread(target=retrier.call, args=(slow,))
    earlier.start()
    sent.acquire()
    retrier.call(fails_twice)
    assert ["fails" in message for message in caplog.messages] == [True, False], "one outage"


@pytest.mark.usefixtures("_limits")
def test_an_upload_waits_as_long_for_a_server_to_receive_it_as_for_its_answer(uri: str) -> None:
    """A server whose workers are all busy receives nothing; urllib3 limits that by the seconds to connect."""
    recorder = open_recorder(uri)
    delivery = recorder._delivery
    assert delivery.upload_retrier.call(MLFLOW_HTTP_REQUEST_TIMEOUT.get, ANSWER_WITHIN_S) == (120, 120)
    assert delivery.retrier.call(MLFLOW_HTTP_REQUEST_TIMEOUT.get) == (5, 20), "whether it is away is known soon"
    recorder.close("finished", 10)


def test_time_that_is_left_out_gives_no_more_patience_than_was_set() -> None:
    retrier = Retrier("http://127.0.0.1", "writing")
    retrier.give_up_after(60)
    retrier.extend(3600)
    assert 59 < retrier.time_left() <= 60


@pytest.mark.parametrize("is_full", [False, True])
def test_a_request_to_a_driver_is_carried_out_once_though_the_server_takes_the_answer_late(
    uri: str, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    write, lost, told = _Channel.write, [ConnectionError()] * 2, list[str]()

    def write_late(channel: _Channel, name: str, content: Mapping[str, Any]) -> None:
        if name == TAG_ANSWER and lost:
            raise lost.pop()
        write(channel, name, content)

    def handle(request: Request) -> str:
        told.append(request["verb"])
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "sweep.json")
        return "it ends"

    monkeypatch.setattr(_Channel, "write", write_late)
    recorder = open_recorder(uri)
    with RequestListener(recorder.ids, handle):
        if is_full:
            with pytest.raises(UserError, match=r"No space left on device: 'sweep.json'\); try again"):
                send_request(load_sweep(uri, "digits-1"), {"verb": "stop"})
        else:
            assert send_request(load_sweep(uri, "digits-1"), {"verb": "stop"}) == "it ends"
    assert told == ["stop"]
    recorder.close("stopped")


class OneRun(Handler):
    """A tracking server with one run, which counts what it is asked."""

    asked: ClassVar[Counter[str]]
    tags: ClassVar[dict[str, str]]

    def answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        verb = self.path.partition("?")[0].rpartition("/")[2]
        self.asked[verb] += 1
        if verb == "set-tag":
            tag = json.loads(content)
            self.tags[tag["key"]] = tag["value"]
        tags = [{"key": key, "value": value} for key, value in self.tags.items()]
        run = {"info": {"run_id": "r", "experiment_id": "1", "lifecycle_stage": "active"}, "data": {"tags": tags}}
        text = json.dumps({"run": run} if verb == "get" else {})
        self.send(200, text.encode(), {"Content-Type": "application/json"})


def test_a_driver_asks_its_server_one_thing_each_time_it_looks_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    read, looks = _Channel.read, list[str]()

    def counted(channel: _Channel, name: str) -> dict[str, Any]:
        looks.append(name)
        return read(channel, name)

    monkeypatch.setattr(_Channel, "read", counted)
    monkeypatch.setattr(control_channel, "POLL_S", 0.01)
    OneRun.asked, OneRun.tags = Counter(), {TAG_REQUEST: '{"id": "1", "verb": "stop"}'}
    with serving_http(OneRun) as uri:
        ids = MlflowIds(tracking_uri=uri, experiment_id="1", run_id="r")
        with RequestListener(ids, lambda _: "it ends"):
            wait_until(lambda: TAG_ANSWER in OneRun.tags and len(looks) > 10)
    assert OneRun.asked["search"] == 1, "whether it answers at all"
    assert OneRun.asked["get"] == len(looks)
    assert looks.count(TAG_ANSWER) == 1


class AnswersLate(OneRun):
    """A tracking server that hangs when it is asked for the run."""

    goes_on: ClassVar[threading.Event]

    def answer(self) -> None:
        if "/runs/get" in self.path:
            self.asked["hangs"] += 1
            self.goes_on.wait()
        super().answer()


def test_a_request_that_is_read_after_the_end_of_a_stage_is_left_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_channel, "POLL_S", 0.01)
    monkeypatch.setattr(control_channel, "ANSWER_WITHIN_S", 0.0)
    OneRun.asked, OneRun.tags = Counter(), {TAG_REQUEST: '{"id": "1", "verb": "extend"}'}
    AnswersLate.goes_on, told = threading.Event(), list[Request]()
    with serving_http(AnswersLate) as uri:
        ids = MlflowIds(tracking_uri=uri, experiment_id="1", run_id="r")
        with RequestListener(ids, lambda request: str(told.append(request))) as listener:
            wait_until(lambda: OneRun.asked["hangs"] == 1)
        AnswersLate.goes_on.set()
        listener._thread.join()
    assert told == []
    assert TAG_ANSWER not in OneRun.tags


class RefusesAtFirst(OneRun):
    """A tracking server that is too busy for the first answer."""

    looks: ClassVar[list[int]]

    def answer(self) -> None:
        if self.path.endswith("/set-tag"):
            self.looks.append(self.asked["get"])
            if len(self.looks) == 1:
                self.send(503)
                return
        super().answer()


def test_an_answer_that_the_server_does_not_take_is_sent_again_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setattr(control_channel, "POLL_S", 0.01)
    OneRun.asked, OneRun.tags = Counter(), {TAG_REQUEST: '{"id": "1", "verb": "stop"}'}
    RefusesAtFirst.looks = []
    with serving_http(RefusesAtFirst) as uri:
        ids = MlflowIds(tracking_uri=uri, experiment_id="1", run_id="r")
        with RequestListener(ids, lambda _: "it ends"):
            wait_until(lambda: TAG_ANSWER in OneRun.tags)
    assert len(RefusesAtFirst.looks) == 2
    assert RefusesAtFirst.looks[1] > RefusesAtFirst.looks[0]


def test_a_resume_goes_on_where_the_store_fails_for_a_moment_while_an_old_request_is_deleted(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_trial(uri):
        pass
    delete, failures = MlflowClient.delete_tag, [ConnectionResetError("the server is restarted")]
    MlflowClient(uri).set_tag(load_sweep(uri, "digits-1").mlflow.run_id, TAG_REQUEST, '{"id": "1", "verb": "stop"}')

    def delete_tag(client: MlflowClient, run_id: str, key: str) -> None:
        delete(client, run_id, key)
        if failures:  # and its answer is lost
            raise failures.pop()

    monkeypatch.setattr(MlflowClient, "delete_tag", delete_tag)
    recorder = open_recorder(uri, resume=True)
    assert not recorder.close("finished")
    assert not failures
    assert TAG_REQUEST not in load_sweep(uri, "digits-1").tags


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrackingUnreachable, match=r"tracking\.uri=sqlite.*can be written"):
        open_recorder(f"sqlite:///{tmp_path}/file/mlflow.db")


def test_a_winner_that_mlflow_refused_while_the_sweeps_run_was_deleted_is_recorded_by_resume(uri: str) -> None:
    counts, client = {"finished": 2}, MlflowClient(uri)
    recorder = open_recorder(uri)
    for trial, loss in (("0", 0.5), ("1", 0.4)):
        recorder.trials.start(trial, POINT, CONFIG, 1)
        recorder.trials.log(trial, 10, {"eval/loss": loss})
        recorder.trials.end(trial, "finished", 10, 1)
    recorder.update(counts, [("0", (0.5,), POINT)], {"wall_s": 1.0})
    assert recorder._delivery.flush()
    client.delete_run(recorder.ids.run_id)
    recorder.update(counts, [("1", (0.4,), POINT)], {"wall_s": 2.0})
    recorder.close("interrupted")
    client.restore_run(recorder.ids.run_id)
    resumed = open_recorder(uri, resume=True)
    resumed.update(counts, [("1", (0.4,), POINT)], {"wall_s": 2.0})
    assert not resumed.close("finished")
    best = load_sweep(uri, "digits-1").best
    assert best is not None
    assert (best.trial, best.value) == ("1", 0.4)


def test_a_summary_is_written_though_the_server_fails_once_while_the_record_is_read(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([TrackingUnreachable("it is restarted")])

    def failing_once(*asked: Any) -> Any:
        for error in answers:
            raise error
        return fetch_sweep(*asked)

    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    with one_trial(uri) as recorder:
        monkeypatch.setattr("sweeps.tracking.recorder.fetch_sweep", failing_once)
    assert "mlflow.loggedArtifacts" in MlflowClient(uri).get_run(recorder.ids.run_id).data.tags


def test_a_summary_for_which_the_time_is_over_says_so(
    uri: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mlruns").write_text("a file where MLflow's artifacts would be")
    recorder = open_recorder(uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    assert recorder._delivery.flush()  # so that nothing is written while the artifacts are tried for all of the time
    recorder.close("finished", patience_s=3)
    reason = "no call has succeeded within tracking.patience_s"
    assert f"the summary of sweep digits-1 could not be written to MLflow: {reason}" in caplog.messages


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back_loses_and_doubles_nothing(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with one_trial(server.uri) as recorder:
        for step in range(300):
            recorder.trials.log("0", step, {"eval/loss": float(step)})
            if step == 100:
                wait_until(lambda: load_sweep(server.uri, "digits-1").trials)
                server.kill()
                recorder.trials.start("1", POINT, CONFIG, 1)
            if step >= 150 and step % 50 == 0:
                time.sleep(1.5)
                (checkpoint := tmp_path / f"step-{step}").mkdir()
                recorder.trials.record_checkpoint("0", str(checkpoint), "last")  # takes the place of one that waits
            recorder.trials.log("0" if step <= 100 else "1", step, {"other": 1.0})
        recorder.trials.end("0", "finished", 299, 1)
        server.start()
    sweep = load_sweep(server.uri, "digits-1")
    assert sweep.status == "finished"
    assert [trial.trial for trial in sweep.trials] == ["0", "1"]
    assert history(server.uri, sweep.trials[0].run_id, "eval/loss") == [(step, step) for step in range(300)]
    assert len(history(server.uri, sweep.trials[0].run_id, "other")) == 101
    assert len(history(server.uri, sweep.trials[1].run_id, "other")) == 199
    for doing in ("writing to MLflow", "writing artifacts"):
        said = [message for message in caplog.messages if message.startswith(doing)]
        assert ["fails" in message for message in said] == [True, False], "one warning each when it fails and works"


@pytest.mark.slow
def test_a_server_that_hangs_holds_up_no_caller(server: Server) -> None:
    recorder = open_recorder(server.uri)
    recorder.trials.start("0", POINT, CONFIG, 1)
    wait_until(lambda: load_sweep(server.uri, "digits-1").trials)
    server.signal(signal.SIGSTOP)
    times = []
    for step in range(2000):
        started = time.perf_counter()
        recorder.trials.log("0", step, {"eval/loss": 1.0, "train/loss": 2.0})
        recorder.update({"running": 1}, [("0", (1.0,), POINT)], {"wall_s": 1.0})
        times.append(time.perf_counter() - started)
        time.sleep(0.0005)
    assert statistics.quantiles(times, n=100)[-1] < 0.001
    started = time.monotonic()
    assert recorder.close("stopped", patience_s=3).points >= 1000
    assert time.monotonic() - started < 10
    server.signal(signal.SIGCONT)


class Between(Handler):
    """Stands between Sweeps and a tracking server; as long as it has an answer of its own, it gives that."""

    protocol_version = "HTTP/1.1"
    port: ClassVar[int]
    own: ClassVar[tuple[int, str, str] | None] = None
    given: ClassVar[Counter[str]] = Counter()
    """Number of its own answers, by the beginning of the path."""

    def answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.own is None:
            server = HTTPConnection("127.0.0.1", self.port)
            with closing(server):
                server.request(self.command, self.path, content, dict(self.headers))
                answer = server.getresponse()
                self.send(answer.status, answer.read(), {"Content-Type": answer.headers["Content-Type"]})
        else:
            self.given["artifacts" if "artifacts" in self.path else "runs"] += 1
            status, kind, text = self.own
            redirection = {"Location": "/login"} if status == 302 else {}
            self.send(status, text.encode(), {"Content-Type": kind, **redirection})


WRONG_ANSWERS = {
    "another database": (404, "application/json", '{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"}'),
    "expired access": (403, "application/json", '{"error_code": "PERMISSION_DENIED", "message": "Token is expired"}'),
    "too many requests": (429, "text/plain", "slow down"),
    "error": (500, "text/html", "<html>Internal Server Error</html>"),
    "page of a proxy": (200, "text/html", "<html>Under maintenance</html>"),
    "way to a sign-in": (302, "text/html", ""),
    "other JSON": (503, "application/json", '["unavailable"]'),
}


@pytest.mark.slow
def test_nothing_is_lost_while_a_server_gives_wrong_answers_to_everything(server: Server, tmp_path: Path) -> None:
    Between.port = server.port
    with serving_http(Between) as uri, one_trial(uri) as recorder:
        wait_until(lambda: load_sweep(server.uri, "digits-1").trials)
        (checkpoint := tmp_path / "step-1").mkdir()
        (checkpoint / "model").write_text("weights")
        for number, answer in enumerate(WRONG_ANSWERS.values(), start=1):
            Between.own, Between.given = answer, Counter()
            recorder.trials.log("0", number, {"eval/loss": float(number)})
            recorder.trials.start(str(number), POINT, CONFIG, 1)
            recorder.trials.log(str(number), 1, {"eval/loss": float(number)})
            recorder.trials.record_checkpoint("0", str(checkpoint), "last")
            wait_until(lambda: Between.given["runs"] > 3, 30)
            Between.own = None
            assert recorder._delivery.flush()
    first, *others = load_sweep(server.uri, "digits-1").trials
    expected = [(number, float(number)) for number in range(1, len(WRONG_ANSWERS) + 1)]
    assert history(server.uri, first.run_id, "eval/loss") == expected
    for trial, (number, value) in zip(others, expected, strict=True):
        assert history(server.uri, trial.run_id, "eval/loss") == [(1, value)], [*WRONG_ANSWERS][number - 1]
    assert artifact_files(server.uri, first.run_id, "checkpoints/last", tmp_path / "copy") == {"model": "weights"}
