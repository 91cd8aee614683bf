"""A tracking server or a folder that is not there, dies, or hangs."""

from __future__ import annotations

import json
import signal
import socket
import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from recording import CONFIG, POINT, Server, history, one_trial, open_recorder
from waiting import wait_until

from sweeps.errors import TrackingUnreachable
from sweeps.tracking.reader import list_sweeps, load_sweep


def test_an_unreachable_server_is_named_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for uri in (f"http://127.0.0.1:{port}", f"postgresql://me:secret@127.0.0.1:{port}/mlflow"):
        for ask in (list_sweeps, open_recorder):
            started = time.monotonic()
            with pytest.raises(TrackingUnreachable, match=rf"tracking\.uri=.*:{port}.*refused") as caught:
                ask(uri)
            assert time.monotonic() - started < 6
            assert "secret" not in str(caught.value)


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
