"""The verb ``ui``: which pages it names, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import HTTPServer
from pathlib import Path

import pytest
from processes import outputs
from recording import free_port, record_small_sweep
from small_http import Handler
from stores import make_store
from waiting import wait_until

from sweeps.cli import ui
from sweeps.tracking.mlflow_pages import trials_page
from sweeps.tracking.reader import load_sweep


class Healthy(Handler):
    def answer(self) -> None:
        self.send(200)


def test_addresses_are_printed_when_they_answer(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    teller = threading.Thread(target=ui._say_once_it_answers, args=(f"http://127.0.0.1:{port}", ["here"], os.getppid()))
    teller.start()
    time.sleep(0.3)  # more than from one question to the next
    assert capsys.readouterr().err == ""
    with HTTPServer(("127.0.0.1", port), Healthy) as server:
        threading.Thread(target=server.handle_request).start()
        teller.join(10)
    assert capsys.readouterr().err == "here\n"


def test_nothing_is_printed_of_a_server_that_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    ui._say_once_it_answers(f"http://127.0.0.1:{free_port()}", ["here"], os.getppid() + 1)
    assert capsys.readouterr().err == ""


def test_pages_of_several_sweeps_are_named(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    make_store(tmp_path / "mlflow.db")
    for name in ("first", "second", "third"):
        record_small_sweep(uri, name)
    number = load_sweep(uri, "first").mlflow.experiment_id
    named = dict(ui._pages(uri, ["first", "third", "first"]))
    assert [*named] == ["first, trials", "first, charts", "third, trials", "third, charts", "all sweeps of digits"]
    assert named["third, trials"] == trials_page(number, "third", "eval/loss", "min")


@pytest.mark.slow
def test_the_ui_prints_its_addresses_and_ends_at_ctrl_c_without_a_traceback(tmp_path: Path) -> None:
    make_store(tmp_path / "mlflow.db")
    log, port = tmp_path / "log", free_port()
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweeps", "ui", f"--port={port}"],
            cwd=tmp_path,
            stderr=output,
            stdout=output,
            text=True,
            start_new_session=True,
        )
        wait_until(lambda: f"MLflow UI on http://127.0.0.1:{port}" in log.read_text(encoding="utf-8"), 100)
        os.killpg(process.pid, signal.SIGINT)
        outputs(process, 60)
    said = log.read_text(encoding="utf-8")
    assert len(said.splitlines()) <= 3, said  # ours, and one of MLflow's about its security
