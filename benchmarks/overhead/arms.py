"""The four ways to run the trainings. Each runs in a process of its own, one after another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from overhead.memory import MemorySampler
from overhead.workload import WORKERS, ArmRecord, Training, write_trainings

ARMS = {
    "stock": "Ray Tune, TorchTrainer and MLflowLoggerCallback with Ray's defaults",
    "process": "Sweeps, scaling.isolation=process",
    "warm": "Sweeps, scaling.isolation=warm",
    "floor": "one pair of long-lived gloo processes, no Ray, Tune or MLflow",
}
ORDER = ("warm", "floor", "process", "stock")
"""Order in which the arms run: floor and stock repeat the trainings of warm."""


class ArmFailed(Exception):
    """An arm has ended with an error; the message has the end of its output."""


@dataclass
class Measured:
    """Measurements of one arm on one workload."""

    record: ArmRecord
    began: float
    """Unix time of the command."""
    wall_s: float
    memory: list[tuple[float, float]]
    """Unix times, and MiB of all processes together."""

    @property
    def trials(self) -> int:
        return len(self.record.trials)

    @property
    def first_s(self) -> float:
        """Seconds from the command to the first report of the first trial."""
        return self.record.trials[0].reports[0] - self.began

    def per_trial_s(self, trials: int | None = None) -> float:
        """Mean seconds from one trial's last report to the next one's: training and everything around it."""
        ends = [trial.reports[-1] for trial in self.record.trials[:trials]]
        return (ends[-1] - ends[0]) / (len(ends) - 1)

    @property
    def goodput(self) -> float:
        """Share of the command's time in which workers had a trial to train."""
        return self.record.train_s / self.wall_s

    @property
    def peak_mib(self) -> float:
        return max(mib for _, mib in self.memory)


def measure(arm: str, workload: str, trials: int, repeated: list[Training]) -> Measured:
    """Run one of ``ARMS`` on one of ``WORKLOADS``, with at least two trials, since the first is counted separately.
    Floor and stock run the first of the warm arm's trainings, ``repeated``."""
    folder = Path(tempfile.mkdtemp(prefix=f"overhead-{arm}-"))
    record, trainings = folder / "record.json", folder / "trainings.json"
    write_trainings(repeated[:trials], trainings)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS)]
    command = {
        "stock": ["-m", "overhead.stock", str(trainings), str(folder), str(record)],
        "process": ["-m", "overhead.ours", workload, "process", str(trials), str(folder), str(record)],
        "warm": ["-m", "overhead.ours", workload, "warm", str(trials), str(folder), str(record)],
        "floor": [*torchrun, "-m", "overhead.floor", str(trainings), str(folder / "checkpoints"), str(record)],
    }[arm]
    log = folder / "log.txt"
    began = time.time()
    with log.open("w", encoding="utf-8") as opened:
        process = subprocess.Popen(
            [sys.executable, *command], env=_environment(), cwd=folder, stdout=opened, stderr=subprocess.STDOUT
        )
        with MemorySampler(process.pid) as memory:
            status = process.wait()
    wall_s = time.time() - began
    if status != 0:
        raise ArmFailed(f"{arm} ended with status {status}; the end of {log}:\n{log.read_text()[-3000:]}")
    measured = Measured(ArmRecord.read(record), began, wall_s, memory.samples)
    shutil.rmtree(folder, ignore_errors=True)
    return measured


def _environment() -> dict[str, str]:
    """Environment in which the benchmark and the checkout can be imported by every process of an arm."""
    here = Path(__file__).resolve().parents[1]
    paths = [str(here), str(here.parent), str(here.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
