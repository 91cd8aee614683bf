"""What users bring that is no Ray Train function: each is made one, as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweeps_train.config import FunctionTask


def adapted(task: FunctionTask, function: Callable[..., Any]) -> Callable[..., None]:
    """A Ray Train function out of what ``task._target_`` leads to."""
    if task.framework == "huggingface":
        from sweeps_train.frameworks import huggingface

        return huggingface.train_function(task.target, function)
    if task.framework == "lightning":
        from sweeps_train.frameworks import lightning

        return lightning.train_function(task.target, function)
    return function
