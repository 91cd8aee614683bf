"""Arm (d): the same trainings in two long-lived gloo processes, without Ray, Tune and MLflow.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m overhead.floor TRAININGS.json FOLDER RECORD.json
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

import torch.distributed as dist

from overhead.workload import METRIC, ArmRecord, Training, TrialTimes, read_trainings
from sweeps_train.config import TRAINING_CONFIG
from sweeps_train.loop import train
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import SilentReporter, Stop


class StopsAt(SilentReporter):
    """Records the time of every report, and stops the training at the step at which the scheduler had stopped it."""

    def __init__(self, last_step: int):
        self._last_step = last_step
        self._step = 0
        self.reports: list[float] = []
        self.stalls: list[float] = []

    def log(self, progress: Progress, metrics: dict[str, float]) -> None:
        self._step = progress.step

    def report(self, progress: Progress, metrics: dict[str, float], checkpoint: str | None, done: bool) -> None:
        began = time.perf_counter()
        self.log(progress, metrics)
        self.reports.append(time.time())
        self.stalls.append(time.perf_counter() - began)

    def should_stop(self, *, can_save: bool = True) -> Stop:
        return Stop.SAVE if self._step >= self._last_step else Stop.NO


def main() -> None:
    trainings_file, folder, record = sys.argv[1:]
    dist.init_process_group("gloo")
    trials: list[TrialTimes] = []
    stalls: list[float] = []
    train_s = 0.0
    for training in read_trainings(Path(trainings_file)):
        began = time.time()
        reporter = _train(training, Path(folder))
        if dist.get_rank() == 0:
            trials.append(TrialTimes(training.trial, reporter.reports, training.steps))
            stalls += reporter.stalls
            train_s += reporter.reports[-1] - began
    if dist.get_rank() == 0:
        ArmRecord(trials, train_s, stalls).write(Path(record))
    gc.collect()  # a wrapped model in a reference cycle keeps the threads of the process group alive
    dist.destroy_process_group()


def _train(training: Training, folder: Path) -> StopsAt:
    config = TRAINING_CONFIG.validate_python(training.config)
    reporter = StopsAt(training.steps)
    train(config, reporter=reporter, checkpoint_folder=str(folder / training.trial), metric=METRIC, mode="max")
    return reporter


if __name__ == "__main__":
    main()
