"""Environment of users' code in Ray's processes: variables (``cluster.env``) and the working folder of the driver, and
arguments without Ray's options."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from sweeps.config.cluster import SET_BY_RAY


def chosen_variables(names: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the named variables that are set, except those that Ray sets for each worker.

    Args:
        names: Names, and beginnings of names followed by ``*``.
        environment: Variables by name.

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


def setting_up(variables: Mapping[str, str], folder: str | None) -> Callable[[], None]:
    """Return a function that Ray calls when it starts a process: it sets environment variables, changes the folder, and
    lets an idle process do the imports of a worker.

    The variables of a ``runtime_env`` would also reach the processes, but Ray's dashboard and logs show them; for a
    function they show only its name. Without this, a process works in the folder of ``ray start``, so that relative
    paths, such as that of a script, would lead elsewhere.

    Args:
        variables: The variables.
        folder: Working folder of the driver; a process whose node lacks it keeps its own. None: all processes keep
            their own.
    """

    def set_up() -> None:
        os.environ.update(variables)
        if folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(folder)
        with contextlib.suppress(ImportError):  # a node without this package: its first actor says so
            from sweeps.runtime.spare_processes import import_when_idle

            import_when_idle()

    return set_up


def hide_options_of_ray() -> None:
    """Remove Ray's options from ``sys.argv``, where argparse in users' code would take them for its own."""
    del sys.argv[1:]
