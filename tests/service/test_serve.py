"""The whole service as people run it: killed at any moment, it loses no sweep and trains none twice."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
import requests
from running import SHORT
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LONG = ("train.max_steps=400", "train.eval_every=20", "train.log_every=5", "tracking.report=false")


class Service:
    """``python -m sweeps serve`` in a folder; a ``with`` block starts and ends it."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder, self.arguments, self.environment = folder, arguments, environment
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self._log = (folder / "serve.log").open("a+")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGTERM)
        self.close()

    def start(self) -> None:
        self._log.seek(0, os.SEEK_END)
        begins = self._log.tell()
        command = [sys.executable, "-m", "sweeps", "serve", "port=0", "queue.dead_after_s=3", "schedules=[]"]
        self.process = subprocess.Popen(
            [*command, *self.arguments],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            stderr=self._log,
            stdout=self._log,
            text=True,
        )

        def found() -> bool:
            self._log.seek(begins)
            match = re.search(r"serves on (\S+)", self._log.read())
            self.url = match[1] if match else ""
            return match is not None

        wait_until(found, 180)

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(30)

    def close(self) -> None:
        self._log.close()

    def get(self, path: str) -> Any:
        return requests.get(f"{self.url}/api/v1/{path}", timeout=30).json()

    def post(self, path: str, **body: Any) -> Any:
        answer = requests.post(f"{self.url}/api/v1/{path}", json=body, timeout=60)
        assert answer.ok, answer.text
        return answer.json()

    def job(self, number: int) -> Any:
        return self.get(f"jobs/{number}")

    def finished_trials(self, sweep: str) -> int:
        counts: dict[str, int] = self.get(f"sweeps/{sweep}").get("counts", {})
        return sum(counts.values()) - counts.get("running", 0)


@pytest.fixture
def service(working_folder: Path) -> Iterator[Service]:
    with Service(working_folder) as service:
        yield service


def test_a_service_killed_and_started_again_goes_on_with_its_queue_and_its_sweeps(service: Service) -> None:
    first = service.post("sweeps", conf="digits", name="first", overrides=["search.num_trials=200", *LONG])
    second = service.post("sweeps", conf="digits", name="second", overrides=["search.num_trials=2", *SHORT])
    waiting = service.post("sweeps", conf="digits", name="waiting", priority=-1)
    wait_until(lambda: service.finished_trials("first"), 180)
    service.end(signal.SIGKILL)
    service.start()
    # The first one runs on, in the same process; the second waits still.
    job = service.job(first["id"])
    assert (job["state"], job["attempts"]) == ("running", 1)
    assert service.job(second["id"])["state"] == "queued"
    ended = service.finished_trials("first")
    wait_until(lambda: service.finished_trials("first") > ended, 120)

    # Its driver is killed: it is resumed by itself.
    (lock,) = (service.folder / "outputs" / ".background").glob(f"job-{first['id']}-*/lock")
    os.killpg(int(lock.read_text()), signal.SIGKILL)
    wait_until(lambda: service.job(first["id"])["attempts"] == 2, 60)
    ended = service.finished_trials("first")
    wait_until(lambda: service.finished_trials("first") > ended, 240)
    assert (service.folder / "outputs" / "first" / "driver.log").is_file()

    # It is stopped, and what waits is cancelled.
    service.post("sweeps/first/stop")
    service.post("sweeps/waiting/stop")
    wait_until(lambda: service.job(first["id"])["state"] == "stopped", 120)
    assert service.job(waiting["id"])["state"] == "cancelled"
    wait_until(lambda: service.get("sweeps/first")["status"] == "stopped", 20)  # it answers from a copy of some seconds
    trials = [trial["trial"] for trial in service.get("sweeps/first")["trials"]]
    assert len(trials) == len(set(trials)) < 200

    # Told to end, the service leaves its sweep alone; the next one sees it to its end.
    wait_until(lambda: service.job(second["id"])["state"] == "running", 60)
    assert service.end(signal.SIGTERM) == 0
    service.start()
    wait_until(lambda: service.job(second["id"])["state"] == "finished", 180)
    assert service.job(second["id"])["attempts"] == 1


def test_with_all_connections_taken_further_ones_are_closed_until_one_is_free(working_folder: Path) -> None:
    with Service(working_folder, "access.connections=4") as service:
        address = urlsplit(service.url)

        def answers() -> bool:
            with contextlib.suppress(requests.ConnectionError):
                return requests.get(f"{service.url}/api/v1/health", timeout=30).status_code == 200
            return False

        taken = [socket.create_connection((address.hostname, address.port)) for _ in range(3)]
        assert answers()
        taken.append(socket.create_connection((address.hostname, address.port)))
        wait_until(lambda: not answers())
        for each in taken:
            each.close()
        wait_until(answers)
