"""User code as a Ray Train function: Ray Train's own in ``ray_train.py``, and what other frameworks have instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sweeps_train.config import FunctionTask


def adapted(task: FunctionTask, function: Callable[..., Any]) -> Callable[..., None]:
    """Return a Ray Train function for what ``task._target_`` leads to."""
    if task.framework == "huggingface":
        from sweeps_train.frameworks import huggingface

        return huggingface.train_function(task.target, function)
    if task.framework == "lightning":
        from sweeps_train.frameworks import lightning

        return lightning.train_function(task.target, function)
    return function
