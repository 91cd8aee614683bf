"""Ray goes away while a sweep trains: within seconds the sweep says so and ends, and nothing is left running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from lost_broker import NET, SLOW_NET, reports
from processes import outputs, run_python
from running import NO_PREFLIGHT, SHORT, Done
from stores import make_store
from waiting import wait_until

SWEEP = ("conf=digits", *SHORT, *SLOW_NET, "cluster.num_cpus=2", "scaling.num_workers=1")
ENDS_WITHIN_S = 10.0


@dataclass(frozen=True)
class Running:
    """A sweep that trains, in a process group of its own."""

    folder: Path
    process: subprocess.Popen[str]
    family: list[psutil.Process]
    """All processes that it has started."""

    def ends(self) -> tuple[int, str, float]:
        """Exit status, errors, and seconds until its end."""
        began = time.monotonic()
        _, err = outputs(self.process, 120)
        return self.process.returncode, err, time.monotonic() - began

    def left(self) -> list[psutil.Process]:
        """Processes of the sweep that still run."""
        return [each for each in self.family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(params=["none"])
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A sweep with the scheduler that the test names."""
    (tmp_path / "nets.py").write_text(NET, encoding="utf-8")
    make_store(tmp_path / "mlflow.db")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "sweeps", "run", *SWEEP, "search.num_trials=3", NO_PREFLIGHT),
            *(f"search/scheduler={request.param}", "tracking.report=false", "--name=gone"),
        ],
        cwd=tmp_path,
        env={**os.environ, "SWEEPS_CACHE": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: process.poll() is not None or reports(tmp_path, "gone") >= 3, 200)
    assert process.poll() is None, process.communicate()
    found = Running(tmp_path, process, psutil.Process(process.pid).children(recursive=True))
    yield found
    for each in found.left():
        each.kill()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["gcs_server", "raylet", "sockets"])
def test_a_sweep_whose_ray_is_killed_or_cleaned_away_ends_within_seconds_and_goes_on_when_resumed(
    running: Running, name: str
) -> None:
    if name == "sockets":
        node = next(each for each in running.family if each.name() == "raylet")
        option = next(each for each in node.cmdline() if each.startswith("--raylet_socket_name="))
        shutil.rmtree(Path(option.partition("=")[2]).parent)
        reason = "was removed, without which no worker can start"
    else:
        next(each for each in running.family if each.name() == name).kill()
        reason = f"its process {name} has ended"
    status, err, took_s = running.ends()
    assert (status, "Traceback" in err) == (1, False), err
    assert "Ray is gone: " in err
    assert reason in err
    assert "python -m sweeps resume gone" in err
    assert took_s < ENDS_WITHIN_S, err
    wait_until(lambda: not running.left(), 5)
    assert_resumes(running.folder)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("running", ["none", "auto"], indirect=True)
def test_sigterm_to_the_whole_process_group_interrupts_a_sweep(running: Running) -> None:
    os.killpg(running.process.pid, signal.SIGTERM)
    status, err, took_s = running.ends()
    assert (status, "Traceback" in err) == (130, False), err
    assert took_s < ENDS_WITHIN_S, err
    wait_until(lambda: not running.left(), 5)
    assert_resumes(running.folder)


def assert_resumes(folder: Path) -> None:
    run_python("-m", "sweeps", "resume", "gone", folder=folder, within_s=250)
    found = Done.of(folder, "gone")
    states = [trial["state"] for trial in found.document["trials"]]
    assert len(states) == 3
    assert "finished" in states
    assert {*states} <= {"finished", "pruned"}
    for run, state in zip(found.trials(), states, strict=True):
        steps = [step for step, _ in found.history(run.info.run_id, "eval/accuracy")]
        assert steps == [10, 20, 30, 40][: len(steps)]
        assert len(steps) == 4 or state == "pruned"
