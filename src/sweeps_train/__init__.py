"""The training library: everything that runs on a worker. Works in Sweeps, with ``torchrun``, and in one process.

Begin reading at ``loop.py``: train, evaluate, save, report. ``lanes/lane.py`` has the state of one training,
``lanes/lockstep.py`` its steps, ``tasks/`` the models and data, ``strategies/`` the ways to spread a training over
workers, ``frameworks/`` the adapters of users' own training code. ``config/`` is the schema, which the driver imports
without torch.

>>> import sweeps_train
>>> sweeps_train.Stop.SAVE
<Stop.SAVE: 1>
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps_train.checkpoints.checkpoint import best_checkpoint, load_model, read_training_config
    from sweeps_train.config import TRAINING_CONFIG, FunctionConfig, TrainingConfig
    from sweeps_train.errors import MicroBatchHalved
    from sweeps_train.frameworks.ray_train import run_function
    from sweeps_train.loop import train
    from sweeps_train.reports.progress import Progress
    from sweeps_train.reports.reporter import PrintReporter, Reporter, Stop
    from sweeps_train.workers.own_folder import start_folder

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
    "start_folder",
    "train",
]


MODULES = {
    "checkpoints.checkpoint": {"best_checkpoint", "load_model", "read_training_config"},
    "config": {"TRAINING_CONFIG", "FunctionConfig", "TrainingConfig"},
    "errors": {"MicroBatchHalved"},
    "frameworks.ray_train": {"run_function"},
    "loop": {"train"},
    "workers.own_folder": {"start_folder"},
    "reports.progress": {"Progress"},
    "reports.reporter": {"PrintReporter", "Reporter", "Stop"},
}
"""Public names by module; a module is imported when one of its names is first used, since torch takes seconds to
import."""


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"sweeps_train.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
