"""Check of a task's Ray Data datasets on the cluster, before any trial starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps.provenance.redacted_text import redacted_error
from sweeps.runtime.environment import hide_options_of_ray
from sweeps.worker_error import FROM_OUTSIDE, describe_exception, without_location
from sweeps_train.config import FunctionTask


def check_datasets(config: SweepConfig) -> Callable[[], list[str]]:
    """Call the functions of ``task.datasets`` in a process of the cluster, as the first worker of a trial will.

    Args:
        config: Config of the first trial. Without datasets, or with ``preflight.timeout_s=0``, nothing is checked.

    Returns:
        A function that waits for the result, and returns warnings or raises ``ConfigError`` if a dataset cannot be
        made.
    """
    task, timeout_s, began = config.task, config.preflight.timeout_s, time.monotonic()
    if not isinstance(task, FunctionTask) or not task.datasets or not timeout_s:
        return list
    import ray

    making: Any = ray.remote(num_cpus=0, max_retries=0)(_mistake)
    answer = making.remote(task)

    def wait() -> list[str]:
        try:
            mistake: tuple[str, bool] | None = ray.get(answer, timeout=max(began + timeout_s - time.monotonic(), 0.0))
        except ray.exceptions.GetTimeoutError:
            ray.cancel(answer, force=True)
            return [f"making task.datasets took longer than preflight.timeout_s={timeout_s:g}; the sweep continues"]
        except ray.exceptions.RayError as error:
            return [f"the check of task.datasets ended ({str(error).splitlines()[0]}); the sweep continues"]
        if mistake is None:
            return []
        text, may_pass = mistake
        if may_pass:
            return [text]
        raise ConfigError(f"{text}\nThis is from the check before the first trial; preflight.timeout_s=0 skips it.")

    return wait


def _mistake(task: FunctionTask) -> tuple[str, bool] | None:
    """Make the datasets; return the error, and whether it has an external cause. Runs in a process of the cluster."""
    from sweeps_train.frameworks.ray_data import make_datasets

    hide_options_of_ray()
    try:
        make_datasets(task)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - users' code may raise anything
        told = redacted_error(describe_exception(error, rank=0, num_workers=1))
        key = "" if "task.datasets." in told.message else "task.datasets: "
        return f"{key}{told.described}", FROM_OUTSIDE.search(without_location(told.described)) is not None
    return None
