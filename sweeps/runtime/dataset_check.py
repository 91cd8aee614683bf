"""Check of a task's Ray Data datasets on the cluster, before any trial starts."""

from __future__ import annotations

import time
from typing import Any

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps.provenance.redacted_text import redacted_error
from sweeps.worker_error import FROM_OUTSIDE, describe_exception, without_location
from sweeps_train.config import FunctionTask


class DatasetCheck:
    """Calls the functions of ``task.datasets`` in a process of the cluster, as the first worker of a trial will."""

    def __init__(self, config: SweepConfig):
        """
        Args:
            config: Config of the first trial. Without datasets, or with ``preflight.timeout_s=0``, nothing is checked.
        """
        self._timeout_s, self._started = config.preflight.timeout_s, time.monotonic()
        self._result: Any = None
        if isinstance(config.task, FunctionTask) and config.task.datasets and self._timeout_s:
            import ray

            self._result = ray.remote(num_cpus=0, max_retries=0)(_mistake).remote(config.task)

    def result(self) -> list[str]:
        """Wait for the result.

        Returns:
            Warnings.

        Raises:
            ConfigError: A dataset cannot be made.
        """
        if self._result is None:
            return []
        import ray

        left = self._started + self._timeout_s - time.monotonic()
        try:
            mistake: tuple[str, bool] | None = ray.get(self._result, timeout=max(left, 0.0))
        except ray.exceptions.GetTimeoutError:
            ray.cancel(self._result, force=True)
            late = f"making task.datasets took longer than preflight.timeout_s={self._timeout_s:g}"
            return [f"{late}; the sweep continues"]
        except ray.exceptions.RayError as error:
            return [f"the check of task.datasets ended ({str(error).splitlines()[0]}); the sweep continues"]
        if mistake is None:
            return []
        text, may_pass = mistake
        if may_pass:
            return [text]
        raise ConfigError(f"{text}\nThis is from the check before the first trial; preflight.timeout_s=0 skips it.")


def _mistake(task: FunctionTask) -> tuple[str, bool] | None:
    """Make the datasets; return the error, and whether it has an external cause. Runs in a process of the cluster."""
    from sweeps_train.frameworks.ray_data import make_datasets

    try:
        make_datasets(task)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - users' code may raise anything
        told = redacted_error(describe_exception(error, rank=0, num_workers=1))
        key = "" if "task.datasets." in told.message else "task.datasets: "
        return f"{key}{told.described}", FROM_OUTSIDE.search(without_location(told.described)) is not None
    return None
