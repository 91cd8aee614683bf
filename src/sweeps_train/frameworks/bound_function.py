"""A user's function, bound to the arguments of a trial."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sweeps_train.config import FunctionTask
from sweeps_train.frameworks import adapted
from sweeps_train.targets import import_target
from sweeps_train.workers.own_folder import as_seen_from_anywhere, start_folder


def bind_function(task: FunctionTask) -> Callable[[], Any]:
    """Bind a function to its arguments, as Ray Train calls it: with one mapping, or without any if it takes none.

    Raises:
        ValueError: The function cannot be called in this way.
    """
    function = import_target("task", task.target)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ValueError(f"task._target_={task.target} is not a callable function ({error})") from error
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [parameter for parameter in parameters if parameter.kind not in variable]
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if len(required) > 1:
        raise ValueError(
            f"task._target_={task.target} asks for {', '.join(required)}; Ray Train gives a function one mapping, "
            "as in `def train(config)`"
        )
    if parameters:
        train, arguments = adapted(task, function), as_seen_from_anywhere(task.arguments, start_folder())
        return lambda: train(dict(arguments))
    if task.framework != "ray_train":
        raise ValueError(f"task._target_={task.target} takes no arguments; give it one, `config`")
    if task.arguments:
        raise ValueError(
            f"task.arguments={task.arguments}: task._target_={task.target} takes no arguments; "
            "write `def train(config)`"
        )
    called: Callable[[], Any] = function
    return called
