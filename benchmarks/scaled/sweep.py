"""One sweep with stand-ins for its trials, measured in its own process.

python -m scaled.sweep WORKERS TRIALS FOLDER
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import psutil
from rich.console import Console

import sweeps
from scaled.stand_ins import GAPS, stand_in
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.terminal_view import PlainView
from sweeps.search.study_version import STUDY_FILE

SAMPLE_EVERY_S = 2.0
LOOK_EVERY_S = 0.05
WRITE_EVERY = 30
"""Samples between two times at which all of them are written."""
NAME = "scale"
STAGES = 2
RESULT = "result.json"
TOTAL = "all threads"
PLACES = {
    "sampler": ("optuna/samplers", "sweeps/search/samplers"),
    "study": ("optuna/storages", "optuna/study", "optuna/trial"),
    "choice of a point": ("sweeps/search/point_source", "sweeps/search/study_search", "sweeps/driver/sweep_searcher"),
    "scheduler": ("sweeps/search/schedulers", "sweeps/search/reported_values"),
    "Tune's own record": ("tune/execution/experiment_state", "ray/train/_internal/storage"),
    "state of the sweep": ("sweeps/driver/", "sweeps/report"),
    "record in MLflow": ("sweeps/tracking", "mlflow"),
    "Tune's loop": ("ray/tune", "ray/air"),
}
"""Parts of the driver, by files on its stack; the innermost frame that is in one counts."""
Stack = list[tuple[str, str]]
"""File and function of each frame of a thread, the innermost first."""
THREAD_LINE = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)")
FRAME_LINE = re.compile(r'  File "(.*)", line \d+ in (.*)')
WAITING = ("ray/_private/worker.py", "threading.py", "queue.py", "selectors.py")


@dataclass
class Sample:
    """State of the sweep at one moment."""

    at: float
    """Seconds since the first trial started."""
    ended: int
    """Trials that have ended."""
    reports: int
    """Reports that the driver has taken."""
    cpu_s: dict[str, float]
    """CPU seconds of the driver by thread that lives, and of all."""
    memory_mib: float
    """Resident memory of the driver."""
    mlflow_mib: float
    study_mib: float
    others_cpu_s: dict[str, float] = field(default_factory=dict)
    """CPU seconds of Ray's processes by name."""


class Measuring(PlainView):
    """The plain view, which also keeps the state of the sweep."""

    state: SweepState | None = None

    def changed(self, state: SweepState) -> None:
        self.state = state
        super().changed(state)


class Sampler:
    """Samples the driver from a thread of its own."""

    def __init__(self, workers: int, view: Measuring, folder: Path):
        self._workers, self._view, self._folder = workers, view, folder
        self.samples: list[Sample] = []
        self.stacks: dict[str, Counter[str]] = {}
        """Number of looks at each thread that found it in a part of the driver."""
        self.functions: Counter[str] = Counter()
        """Number of looks at the main thread that found a function on its stack."""
        self._began: float | None = None
        self._own_s = 0.0
        """Processor time of the sampler itself, which is not the driver's."""
        self._process = psutil.Process()
        self._dump = (folder / "stacks.txt").open("w+")
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._dump.close()
        if self._view.state is not None:  # it is None if Ray did not start
            self._sample()

    def _run(self) -> None:
        sampled = 0.0
        while not self._done.wait(LOOK_EVERY_S):
            state = self._view.state
            if state is None or not state.trials:
                continue
            self._began = self._began or time.monotonic()
            self._look()
            self._own_s = time.thread_time()
            if time.monotonic() - sampled >= SAMPLE_EVERY_S:
                sampled = time.monotonic()
                self._sample()
                if len(self.samples) % WRITE_EVERY == 0:
                    _write(self._workers, self, self._folder)

    def _look(self) -> None:
        stacks = _stacks(self._dump)
        for thread in threading.enumerate():
            stack = stacks.get(thread.ident or 0)
            if stack and thread is not self._thread:
                self.stacks.setdefault(_thread_name(thread.name), Counter())[_part(stack)] += 1
        self.functions.update(_functions(stacks.get(threading.main_thread().ident or 0, [])))

    def _sample(self) -> None:
        state = self._view.state
        assert state is not None
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        times = self._process.cpu_times()
        cpu: Counter[str] = Counter({TOTAL: times.user + times.system - self._own_s})
        for each in self._process.threads():
            cpu[_thread_name(names.get(each.id, "native threads of Ray"))] += each.user_time + each.system_time
        sweep = self._folder / "outputs" / NAME
        self.samples.append(
            Sample(
                at=time.monotonic() - (self._began or time.monotonic()),
                ended=state.ended_count(),
                reports=sum(len(status.curve) for status in [*state.trials.values()]),
                cpu_s=dict(cpu),
                memory_mib=self._process.memory_info().rss / 2**20,
                mlflow_mib=_mib(self._folder.glob("mlflow.db*")),
                study_mib=_mib(sweep.glob(f"{STUDY_FILE}*")),
                others_cpu_s=self._others(),
            )
        )

    def _others(self) -> dict[str, float]:
        cpu: Counter[str] = Counter()
        for process in self._process.children(recursive=True):
            try:
                name = process.cmdline()[0].split("/")[-1] if process.cmdline() else process.name()
                cpu[name] += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
        return {name: seconds for name, seconds in cpu.items() if seconds > 1}


def _thread_name(name: str) -> str:
    return name.rstrip("0123456789-_ ") or name


def _mib(files: Any) -> float:
    sizes = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # SQLite removes its journal
            sizes.append(file.stat().st_size)
    return sum(sizes) / 2**20


def _stacks(dump: TextIO) -> dict[int, Stack]:
    """Stacks of all threads by ident. Python's frame objects cannot be followed while their thread goes on, which
    crashed a sweep; ``faulthandler`` lets no thread go on meanwhile."""
    dump.seek(0)
    dump.truncate()
    faulthandler.dump_traceback(dump)
    dump.seek(0)
    stacks: dict[int, Stack] = {}
    stack: Stack = []
    for line in dump:
        if (thread := THREAD_LINE.match(line)) is not None:
            stack = stacks.setdefault(int(thread[1], 16), [])
        elif (frame := FRAME_LINE.match(line)) is not None:
            stack.append((frame[1], frame[2]))
    return stacks


def _part(stack: Stack) -> str:
    """Part of the driver that a thread is in."""
    if stack[0][0].endswith(WAITING):
        return "waits"
    for file, _ in stack:
        for part, places in PLACES.items():
            if any(place in file for place in places):
                return part
    return "other"


def _functions(stack: Stack) -> set[str]:
    return {f"{'/'.join(file.split('/')[-3:])}:{function}" for file, function in stack}


def main() -> None:
    workers, trials, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    os.chdir(folder)
    stand_in(folder, min(STAGES, workers), 2 * workers + 100)
    overrides = [
        *("search=optuna_asha", f"search.num_trials={trials}", "scaling=single_worker", "cluster.num_cpus=1"),
        f"scaling.resources_per_worker.CPU={1 / workers}",
        *("tracking.report=false", "preflight.timeout_s=0", "scaling.hang_timeout_s=7200"),
    ]
    with (folder / "events.log").open("w") as log:
        view = Measuring(Console(file=log, width=200))
        began = time.monotonic()
        with Sampler(workers, view, folder) as sampler:
            sweep = sweeps.run("digits", overrides, name=NAME, view=view)
    _write(workers, sampler, folder, wall_s=time.monotonic() - began, counts=dict(sweep.counts))


def _write(workers: int, sampler: Sampler, folder: Path, **more: Any) -> None:
    """Write what was measured so far; ``more`` is known only at the end."""
    gaps = [float(line) for file in folder.glob(f"{GAPS}-*") for line in file.read_text().split()]
    result = {
        "workers": workers,
        "trials": sampler.samples[-1].ended,
        "samples": [asdict(sample) for sample in sampler.samples],
        "gaps_s": sorted(gaps),
        "stacks": {name: dict(counts) for name, counts in sampler.stacks.items()},
        "functions": dict(sampler.functions.most_common(60)),
        **more,
    }
    partial = folder / f"{RESULT}.partial"
    partial.write_text(json.dumps(result))
    partial.rename(folder / RESULT)


if __name__ == "__main__":
    main()
