"""A request for a training: the arguments of ``train``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweeps_train.config import TrainingConfig
from sweeps_train.config.better import Objective
from sweeps_train.reports.pending_reports import Evaluator
from sweeps_train.reports.reporter import Reporter


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
