"""Environment variables of the driver for the processes of a running cluster (``cluster.env``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from sweeps.config.execution import SET_BY_RAY


def chosen_variables(names: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are named, as far as they are set; never those that Ray sets for each worker.

    Args:
        names: Names, and beginnings of names followed by ``*``.
        environment: Where the variables are looked up.

    Example:
        >>> chosen_variables(["HF_TOKEN", "NCCL_*"], {"NCCL_DEBUG": "INFO", "HOME": "/root"})
        {'NCCL_DEBUG': 'INFO'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name not in SET_BY_RAY
        and any(name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in names)
    }


def setting_variables(values: Mapping[str, str]) -> Callable[[], None]:
    """A function that sets environment variables, for Ray to call when it starts a process.

    The variables of a ``runtime_env`` would reach processes, too, but Ray's dashboard and logs show those. They show
    the name of a function alone.
    """

    def set_variables() -> None:
        os.environ.update(values)

    return set_variables
