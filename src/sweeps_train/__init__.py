"""The training library: everything that runs on a worker. Works in Sweeps, with ``torchrun``, and in one process.

Begin reading at ``loop.py``: train, evaluate, save, report. ``trainer.py`` has its steps, ``tasks/`` the models and
data, ``strategies/`` the ways to spread a training over workers, ``frameworks/`` the adapters of users' own training
code. ``config/`` is the schema, which the driver imports without torch.

>>> import sweeps_train
>>> sweeps_train.Stop.SAVE
<Stop.SAVE: 1>
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps_train.checkpoint import best_checkpoint as best_checkpoint
    from sweeps_train.checkpoint import load_model as load_model
    from sweeps_train.checkpoint import read_training_config as read_training_config
    from sweeps_train.config import TRAINING_CONFIG as TRAINING_CONFIG
    from sweeps_train.config import FunctionConfig as FunctionConfig
    from sweeps_train.config import TrainingConfig as TrainingConfig
    from sweeps_train.errors import MicroBatchHalved as MicroBatchHalved
    from sweeps_train.frameworks.ray_train import run_function as run_function
    from sweeps_train.loop import train as train
    from sweeps_train.progress import Progress as Progress
    from sweeps_train.reporter import PrintReporter as PrintReporter
    from sweeps_train.reporter import Reporter as Reporter
    from sweeps_train.reporter import Stop as Stop

MODULES = {
    "FunctionConfig": "config",
    "MicroBatchHalved": "errors",
    "PrintReporter": "reporter",
    "Progress": "progress",
    "Reporter": "reporter",
    "Stop": "reporter",
    "TRAINING_CONFIG": "config",
    "TrainingConfig": "config",
    "best_checkpoint": "checkpoint",
    "load_model": "checkpoint",
    "read_training_config": "checkpoint",
    "run_function": "frameworks.ray_train",
    "train": "loop",
}
"""Module of each public name; imported on first use, since torch takes seconds."""

__all__ = [
    "TRAINING_CONFIG",
    "FunctionConfig",
    "MicroBatchHalved",
    "PrintReporter",
    "Progress",
    "Reporter",
    "Stop",
    "TrainingConfig",
    "best_checkpoint",
    "load_model",
    "read_training_config",
    "run_function",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(importlib.import_module(f"sweeps_train.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
