"""A sweep that faults are injected into: its processes, its folder, its MLflow server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from disk import Disk
from lost_broker import NET, SLOW_NET
from recording import Server
from running import NO_PREFLIGHT

if TYPE_CHECKING:
    from postgres_cluster import Cluster

TRIALS = 6
SEARCHES: dict[str, tuple[str, ...]] = {
    "sweeps": ("search=sweeps",),
    "asha": ("search=asha",),
    "hyperband": ("search/scheduler=hyperband", "search/sampler=random"),
    "pbt": ("search=pbt", "train.schedule=constant", "search.scheduler.quantile=0.5"),
}
SWEEP = (
    *("conf=digits", "train.max_steps=200", "train.eval_every=20", "train.log_every=10"),
    *(*SLOW_NET, "train.lr=tag(log, interval(1e-3, 1e-1))"),
    *(f"search.num_trials={TRIALS}", "search.max_retries=50", "scaling.num_workers=1", "cluster.num_cpus=2"),
    *(NO_PREFLIGHT, "tracking.report=false"),
)
"""Two trials at a time, with ten reports each, one a second."""
WORKER = "ray::RayTrainWorker"
"""Beginning of the title of a worker's process."""


@dataclass(frozen=True)
class Record:
    """Store in which a sweep is recorded."""

    uri: str
    """MLflow's address."""
    database: str
    """Address of MLflow's database."""
    server: Server | None = None
    postgres: Cluster | None = None

    @classmethod
    def in_file(cls, file: Path) -> Record:
        return cls(f"sqlite:///{file}", f"sqlite:///{file}")

    @classmethod
    def on_server(cls, server: Server, database: str, postgres: Cluster | None = None) -> Record:
        return cls(server.uri, database, server, postgres)


class Victim:
    """A sweep, its driver and the processes of its Ray."""

    def __init__(self, folder: Path, search: str, record: Record, disk: Disk | None) -> None:
        self.folder, self.name, self.search, self.record, self.disk = folder, folder.name, search, record, disk
        self.sweep = folder / "outputs" / self.name
        self._clock = folder / "clock"
        self.process: subprocess.Popen[bytes] | None = None
        self._family: set[psutil.Process] = set()

    def run(self) -> None:
        (self.folder / "nets.py").write_text(NET, encoding="utf-8")
        self._start("run", *SWEEP, *SEARCHES[self.search], f"tracking.uri={self.record.uri}", f"--name={self.name}")

    def resume(self) -> None:
        """Go on with the sweep; one that ended before it was recorded and had a trial is run again."""
        is_unknown = f"there is no sweep '{self.name}'" in self.last_said
        if is_unknown and not any(self.sweep.glob("trials/*")):
            self.run()
        else:
            self._start("resume", self.name)

    def _start(self, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SWEEPS_CACHE": str(self.folder / "cache"),
            "MLFLOW_TRACKING_URI": self.record.uri,
            "SWEEPS_TEST_CLOCK": str(self._clock),
            "PYTHONPATH": str(Path(__file__).with_name("clock")),
        }
        with (self.folder / "output.txt").open("ab") as output:
            output.write(f"$ {' '.join(arguments)}\n".encode())
            output.flush()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sweeps", *arguments],
                cwd=self.folder,
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    # --- its processes ------------------------------------------------------------------------------------------

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def look(self) -> None:
        """Note which processes there are: those of a dead driver are nobody's children any more."""
        if self.process is not None:
            with suppress(psutil.NoSuchProcess):
                self._family |= set(psutil.Process(self.process.pid).children(recursive=True))

    def processes(self, *titles: str) -> list[psutil.Process]:
        """Living processes whose command line begins with one of these titles, or whose program has that name."""
        self.look()
        found = []
        for each in self._family:
            with suppress(psutil.NoSuchProcess):
                words = each.cmdline()
                if words and (words[0].startswith(titles) or Path(words[0]).name in titles):
                    found.append(each)
        return sorted(found, key=lambda each: each.pid)

    def wait_for_trials(self, within_s: float) -> bool:
        """Wait until trials train; returns whether they do."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and self.runs:
            if self.processes(WORKER) and list(self.sweep.glob("trials/*/reports.jsonl")):
                return True
            time.sleep(0.2)
        return False

    def wait(self, within_s: float) -> int | None:
        """Wait for the driver's end; returns its exit status, None if it has not ended."""
        assert self.process is not None
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            self.look()
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(0.5)
        return None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to resume, as the last driver said by its exit status or in words."""
        assert self.process is not None
        return self.process.poll() == 0 or "Nothing is left to resume" in self.last_said

    def reap(self, within_s: float) -> list[str]:
        """Wait for the end of what a driver has started, and kill what is left; returns its names."""
        _, left = psutil.wait_procs([each for each in self._family if each.is_running()], within_s)
        names = []
        for each in left:
            with suppress(psutil.NoSuchProcess):
                if each.status() != psutil.STATUS_ZOMBIE:
                    names.append(" ".join(each.cmdline())[:60])
                each.kill()
        self._family.clear()
        return names

    def kill(self) -> None:
        """End everything."""
        if self.process is not None:
            self.look()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.reap(0)

    # --- its clock ----------------------------------------------------------------------------------------------

    def set_clock(self, seconds: float) -> None:
        """Let the clocks of all its processes differ from the true one."""
        self._clock.write_text(str(seconds), encoding="ascii")

    @property
    def last_said(self) -> str:
        """Output of the last driver."""
        said = (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace")
        return said.rpartition("\n$ ")[2]
