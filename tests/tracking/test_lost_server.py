"""A tracking server or a folder that is not there, dies, or hangs."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import threading
import time
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from postgres import FOLDER, PASSWORD, Postgres
from recording import CONFIG, POINT, Server, artifact_files, history, one_trial, open_recorder
from sqlalchemy.exc import OperationalError
from waiting import wait_until

from sweeps.errors import TrackingUnreachable
from sweeps.tracking import retry
from sweeps.tracking.client import check_port
from sweeps.tracking.reader import list_sweeps, load_sweep
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


class BreaksOff(BaseHTTPRequestHandler):
    """A server that is killed while it answers with a page of runs."""

    def do_POST(self) -> None:
        experiments = {"experiments": [{"experiment_id": "1", "name": "sweeps"}]}
        text = json.dumps({} if "runs" in self.path else experiments).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text) + 1000 * ("runs" in self.path)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_that_breaks_off_its_answer_counts_as_away() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BreaksOff) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(TrackingUnreachable, match=r"tracking\.uri=.*does not answer: .*IncompleteRead"):
                list_sweeps(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()


def test_limits_of_requests_are_of_one_thread_and_the_users_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_HTTP_REQUEST_TIMEOUT

    from sweeps.tracking.client import _limit_requests_by_thread, request_limits

    _limit_requests_by_thread()
    for variable in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.delenv(variable, raising=False)
    with request_limits(8), ThreadPoolExecutor(1) as other:
        assert (MLFLOW_HTTP_REQUEST_TIMEOUT.get(), MLFLOW_HTTP_REQUEST_MAX_RETRIES.get()) == ((5, 8), 0)
        assert other.submit(MLFLOW_HTTP_REQUEST_TIMEOUT.get).result() == 120
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
        assert MLFLOW_HTTP_REQUEST_TIMEOUT.get() == 77


def test_a_slow_server_is_given_more_time_with_each_repetition_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_TIMEOUT

    from sweeps.tracking.client import _limit_requests_by_thread

    _limit_requests_by_thread()
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.0)
    limits: list[float] = []

    def answers_within_70_s() -> None:
        limits.append(MLFLOW_HTTP_REQUEST_TIMEOUT.get()[1])
        if limits[-1] < 70:
            raise TimeoutError

    Retrier("http://127.0.0.1", "writing").call(answers_within_70_s, timeout_s=20)
    assert limits == [20, 40, 80]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TrackingUnreachable, match=r"tracking\.uri=sqlite.*can be written"):
        open_recorder(f"sqlite:///{tmp_path}/file/mlflow.db")


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
def test_a_server_that_hangs_holds_up_no_caller(server: Server, caplog: pytest.LogCaptureFixture) -> None:
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


class Between(BaseHTTPRequestHandler):
    """Stands between Sweeps and a tracking server; as long as it has an answer of its own, it gives that."""

    protocol_version = "HTTP/1.1"
    port: ClassVar[int]
    answer: ClassVar[tuple[int, str, str] | None] = None
    given: ClassVar[Counter[str]] = Counter()
    """Number of its own answers, by the beginning of the path."""

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.answer is None:
            server = HTTPConnection("127.0.0.1", self.port)
            with closing(server):
                server.request(self.command, self.path, content, dict(self.headers))
                answer = server.getresponse()
                self._send(answer.status, answer.headers["Content-Type"], answer.read())
        else:
            self.given["artifacts" if "artifacts" in self.path else "runs"] += 1
            status, kind, text = self.answer
            self._send(status, kind, text.encode())

    do_GET = do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815 - names of the standard library

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if status == 302:
            self.send_header("Location", "/login")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


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
    with ThreadingHTTPServer(("127.0.0.1", 0), Between) as between:
        threading.Thread(target=between.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{between.server_port}"
        with one_trial(uri) as recorder:
            wait_until(lambda: load_sweep(server.uri, "digits-1").trials)
            (checkpoint := tmp_path / "step-1").mkdir()
            (checkpoint / "model").write_text("weights")
            for number, answer in enumerate(WRONG_ANSWERS.values(), start=1):
                Between.answer, Between.given = answer, Counter()
                recorder.trials.log("0", number, {"eval/loss": float(number)})
                recorder.trials.start(str(number), POINT, CONFIG, 1)
                recorder.trials.log(str(number), 1, {"eval/loss": float(number)})
                recorder.trials.record_checkpoint("0", str(checkpoint), "last")
                wait_until(lambda: Between.given["runs"] > 3, 30)
                Between.answer = None
                assert recorder._delivery.flush()
        between.shutdown()
    first, *others = load_sweep(server.uri, "digits-1").trials
    expected = [(number, float(number)) for number in range(1, len(WRONG_ANSWERS) + 1)]
    assert history(server.uri, first.run_id, "eval/loss") == expected
    for trial, (number, value) in zip(others, expected, strict=True):
        assert history(server.uri, trial.run_id, "eval/loss") == [(1, value)], [*WRONG_ANSWERS][number - 1]
    assert artifact_files(server.uri, first.run_id, "checkpoints/last", tmp_path / "copy") == {"model": "weights"}
