"""The trainings of all arms, and the record that every arm leaves."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

METRIC = "eval/accuracy"
WORKERS = 2

ONE_TRIAL_AT_A_TIME = ("search.max_concurrent=1", f"scaling.num_workers={WORKERS}", f"cluster.num_cpus={WORKERS}")
WORKLOADS = {
    # Two gloo workers, three reports with a checkpoint each, milliseconds of training.
    "trivial": (
        "conf=digits",
        "search=random",
        "space=none",
        "model=custom",
        "model._target_=overhead.probe.Net",
        "train.lr=tag(log, interval(1e-4, 1e-1))",
        "train.global_batch_size=32",
        "train.max_steps=3",
        "train.eval_every=1",
        "train.log_every=1",
        "search.default_first=false",
    ),
    # TPE and ASHA over two models, three batch sizes and two optimizers.
    "digits": ("conf=digits", "search=optuna_asha"),
}


@dataclass
class Training:
    """One trial, with its end in the arm that others repeat."""

    trial: str
    config: dict[str, Any]
    """The ``TrainingConfig``, as JSON."""
    steps: int
    """Steps until the end, or until the scheduler stopped it."""


@dataclass
class TrialTimes:
    """Times of one trial on rank 0."""

    trial: str
    reports: list[float]
    """Unix times of its reports."""
    steps: int


@dataclass
class ArmRecord:
    """Record of one arm."""

    trials: list[TrialTimes]
    """Trials in the order in which they ended."""
    train_s: float
    """Seconds in which workers had a trial, from its start to its last report, summed over trials."""
    stalls: list[float] = field(default_factory=list)
    """Seconds that each report kept rank 0 from training; only of trivial trials."""
    trainings: list[Training] = field(default_factory=list)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, file: Path) -> ArmRecord:
        raw = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            trials=[TrialTimes(**each) for each in raw["trials"]],
            train_s=raw["train_s"],
            stalls=raw["stalls"],
            trainings=[Training(**each) for each in raw["trainings"]],
        )


def write_trainings(trainings: list[Training], file: Path) -> None:
    file.write_text(json.dumps([asdict(each) for each in trainings]), encoding="utf-8")


def read_trainings(file: Path) -> list[Training]:
    return [Training(**each) for each in json.loads(file.read_text(encoding="utf-8"))]
