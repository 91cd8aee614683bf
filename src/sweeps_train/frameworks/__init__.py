"""Adapters from user code to Ray Train functions: ``ray_train.py`` for Ray Train's own, and modules for other
frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweeps_train.config import FunctionTask


def adapted(task: FunctionTask, function: Callable[..., Any]) -> Callable[..., None]:
    """Return a Ray Train function for the target of ``task._target_``."""
    if task.framework == "huggingface":
        from sweeps_train.frameworks import huggingface

        return huggingface.train_function(task.target, function)
    if task.framework == "lightning":
        from sweeps_train.frameworks import lightning

        return lightning.train_function(task.target, function)
    return function
