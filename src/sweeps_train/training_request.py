"""A request for a training: the arguments of ``train``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweeps_train.config import TrainingConfig
from sweeps_train.config.better import Objective
from sweeps_train.reports.pending_reports import Evaluator
from sweeps_train.reports.reporter import Reporter, SilentReporter


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One training that a lane is to start or continue; ``train`` documents the fields."""

    config: TrainingConfig
    reporter: Reporter | None = None
    checkpoint_folder: str | None = None
    resume: bool = True
    objectives: Sequence[Objective] = (Objective("eval/loss", "min"),)
    largest_micro_batch: int | None = None
    on_prepared: Callable[[], object] = lambda: None
    evaluator: Evaluator | None = None
    failures: int = 0

    @property
    def root(self) -> Path | None:
        """Absolute path of the folder of the checkpoints, if there is one."""
        return None if self.checkpoint_folder is None else Path(self.checkpoint_folder).absolute()

    def reporter_on(self, rank: int) -> Reporter:
        """Return the reporter on rank 0, and a silent one on others or if there is none."""
        return self.reporter if self.reporter is not None and rank == 0 else SilentReporter()
