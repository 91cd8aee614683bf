"""A user's own Ray Train function as a training: unchanged, and never the wiser.

What it calls (``ray.train.report``, ``ray.train.get_checkpoint``, ...) goes through an object that Ray Train keeps in
each worker and that may be replaced. Ours tells the reporter at once, where Ray's controller would only look after its
workers from time to time, and keeps the checkpoints in the trial's folder, where its next attempt finds them.
"""

from __future__ import annotations

import inspect
import json
import numbers
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray.train import Checkpoint
from ray.train.v2._internal.execution import collective_impl
from ray.train.v2._internal.execution.train_fn_utils import (
    DistributedTrainFnUtils,
    get_train_fn_utils,
    set_train_fn_utils,
)
from ray.train.v2.api.report_config import CheckpointConsistencyMode, CheckpointUploadMode
from ray.train.v2.api.reported_checkpoint import ReportedCheckpoint, ReportedCheckpointStatus

from sweeps_train.checkpoint import (
    METRICS_FILE,
    UNFINISHED,
    complete_checkpoints,
    finish,
    newest_intact,
    read_metrics,
    remove_superseded,
    remove_unfinished,
    write_json,
)
from sweeps_train.config import FunctionConfig, FunctionTask
from sweeps_train.frameworks import adapted
from sweeps_train.frameworks.script import script_function
from sweeps_train.progress import Progress
from sweeps_train.random_state import seed_all
from sweeps_train.reporter import Reporter, Stop
from sweeps_train.targets import import_target

FILES = "files"
"""Folder within a checkpoint that holds what the function saved, and nothing else."""
PROGRESS_FILE = "progress.json"
STEP_METRICS = ("step", "training_iteration")
"""Metrics by which a function may say how many steps it has done; else its reports are counted."""


def run_function(
    config: FunctionConfig, *, reporter: Reporter | None, checkpoint_folder: str, metric: str, mode: str
) -> None:
    """Calls the function, until it returns or the reporter asks to stop. Every worker of a Ray Train group calls it.

    A function knows nothing of stopping: it is left by an exception, out of the same ``ray.train.report`` on all
    workers, so that none of them waits for another one.

    Args:
        config: The same on all workers.
        reporter: Hears of metrics and checkpoints on rank 0.
        checkpoint_folder: Where the trial's checkpoints are, on a file system that all workers share.
        metric: What decides which checkpoint is the best; every report must have it.
        mode: Whether ``min`` or ``max`` of it is best.

    Raises:
        ValueError: The function cannot be called, or does not report the metric.
        TypeError: What it reports as the metric is no number.
    """
    function = script_function(config.task, metric) if config.task.framework == "script" else _bind(config.task)
    reports = _Reports(config, reporter, Path(checkpoint_folder), metric, mode)
    seed_all(config.seed, reports.rank)
    of_ray = get_train_fn_utils()
    set_train_fn_utils(reports)
    try:
        function()
    except _Stopped:
        return
    finally:
        set_train_fn_utils(of_ray)
    reports.end()


class _Stopped(BaseException):
    """Leaves the function; as KeyboardInterrupt, it passes through ``except Exception``."""


@dataclass(frozen=True)
class FunctionProgress(Progress):
    """How far a function is, as far as its reports show it; ``seconds`` is the time between them."""

    evaluations: int = 0
    """Reports so far."""

    def resources(self) -> dict[str, float]:
        return {"steps": self.step, "evaluations": self.evaluations, "seconds": self.seconds}


class _Reports(DistributedTrainFnUtils):
    """What the function's calls of ``ray.train`` do."""

    def __init__(self, config: FunctionConfig, reporter: Reporter | None, root: Path, metric: str, mode: str):
        self._config, self._root, self._metric, self._mode = config, root, metric, mode
        self.rank: int = self.get_context().get_world_rank()
        self._reporter = reporter if self.rank == 0 else None
        self._progress = FunctionProgress()
        self._metrics: dict[str, float] = {}
        """Of the last report, on rank 0."""
        self._newest = self._starting_point()
        """The newest checkpoint to which this worker has contributed, or that it started from."""
        if self._newest is not None:
            progress = json.loads((self._newest / PROGRESS_FILE).read_text(encoding="utf-8"))
            self._progress = FunctionProgress(**progress)
            self._metrics = read_metrics(self._newest) or {}
            if self._reporter is not None:  # the process may have died between saving and reporting
                self._reporter.report(self._progress, self._metrics, str(self._newest / FILES), done=False)
        self._resumed = time.perf_counter()

    def _starting_point(self) -> Path | None:
        name = None
        if self.rank == 0:
            remove_unfinished(self._root)
            newest, damages = newest_intact(self._root)
            if self._reporter is not None:
                for each in damages:
                    self._reporter.note(each)
            name = newest.name if newest is not None else None
        name = self.broadcast_from_rank_zero(name)
        return self._root / name if name is not None else None

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        delete_local_checkpoint_after_upload: bool | None = None,
        checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
        validation: Any = False,
    ) -> None:
        """See ``ray.train.report``: all workers meet here, and learn whether to stop."""
        if validation:
            raise ValueError("ray.train.report(validation=...): a search cannot wait for it; validate in the function")
        seconds = self._progress.seconds + time.perf_counter() - self._resumed
        reports = self._progress.evaluations + 1
        # The step, which the checkpoint is named after, is known to the others only when all have met.
        unfinished = self._root / f"step-report{reports}{UNFINISHED}"
        if checkpoint is not None:
            source = checkpoint if checkpoint_upload_fn is None else checkpoint_upload_fn(checkpoint, unfinished.name)
            _copy(source, unfinished / FILES)
            if delete_local_checkpoint_after_upload:
                shutil.rmtree(checkpoint.path, ignore_errors=True)
        of_first = None
        if self._reporter is not None:
            self._metrics = _numbers(metrics, self._metric)
            of_first = self._next_step(metrics), self._reporter.should_stop()
        step, stop = collective_impl.broadcast_from_rank_zero(of_first, caller_method_name="ray.train.report")
        if stop == Stop.DISCARD:
            raise _Stopped
        self._progress = FunctionProgress(step=step, evaluations=reports, seconds=seconds)
        if checkpoint is not None:
            self._newest = self._root / f"step-{step:08d}"
        if self._reporter is not None:
            self._reporter.report(self._progress, self._metrics, self._finish(unfinished), done=False)
        # Once more: the reporter may have waited for what was decided on the report.
        asked = None if self._reporter is None else self._reporter.should_stop()
        if max(stop, collective_impl.broadcast_from_rank_zero(asked, caller_method_name="ray.train.report")):
            raise _Stopped
        self._resumed = time.perf_counter()

    def _next_step(self, metrics: Mapping[str, Any]) -> int:
        """Steps never go back: what is recorded by step would get lost."""
        said = next((metrics[name] for name in STEP_METRICS if isinstance(metrics.get(name), numbers.Integral)), 0)
        return max(int(said), self._progress.step + 1)

    def _finish(self, unfinished: Path) -> str | None:
        """The folder of the checkpoint to which all workers have added their part, if any of them has one."""
        if not unfinished.exists():
            return None
        write_json(unfinished / METRICS_FILE, self._metrics)
        write_json(unfinished / PROGRESS_FILE, asdict(self._progress))
        path = self._root / f"step-{self._progress.step:08d}"
        finish(unfinished, path)
        self._remove_superseded(finished=False)
        return str(path / FILES)

    def end(self) -> None:
        """The function has returned: its last report is the trial's result."""
        if self._progress.evaluations == 0:
            raise ValueError(
                f"task._target_={self._config.task.target} returned without a report; "
                f"call ray.train.report({{{self._metric!r}: ...}}) in it, on all workers"
            )
        if self._reporter is not None:
            self._reporter.report(self._progress, self._metrics, None, done=True)
            if complete_checkpoints(self._root):
                self._remove_superseded(finished=True)

    def _remove_superseded(self, *, finished: bool) -> None:
        remove_superseded(self._root, self._config.checkpoint.keep, self._metric, self._mode, finished=finished)

    def get_checkpoint(self) -> Checkpoint | None:
        if self._newest is None:
            return None
        while not self._newest.exists():  # rank 0 is about to give it its name
            time.sleep(0.01)
        return Checkpoint(str(self._newest / FILES))

    def get_all_reported_checkpoints(
        self,
        consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
        timeout_s: float | None = None,
    ) -> list[ReportedCheckpoint]:
        """Those that are kept."""
        return [
            ReportedCheckpoint(
                Checkpoint(str(path / FILES)), read_metrics(path) or {}, ReportedCheckpointStatus.COMMITTED
            )
            for path in complete_checkpoints(self._root)
        ]

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        raise ValueError(
            f"ray.train.get_dataset_shard({dataset_info.dataset_name!r}): nobody gives this function a Ray Data set; "
            "make it in the function, with a part for each rank"
        )


def _bind(task: FunctionTask) -> Callable[[], Any]:
    """The function with its arguments, as Ray Train calls it: with one mapping, or with nothing if it takes none."""
    function = import_target("task", task.target)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ValueError(f"task._target_={task.target} is no function that can be called ({error})") from error
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [parameter for parameter in parameters if parameter.kind not in variable]
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if len(required) > 1:
        raise ValueError(
            f"task._target_={task.target} asks for {', '.join(required)}; Ray Train gives a function one mapping, "
            "as in `def train(config)`"
        )
    if parameters:
        train = adapted(task, function)
        return lambda: train(dict(task.arguments))
    if task.framework != "ray_train":
        raise ValueError(f"task._target_={task.target} takes no arguments; give it one, `config`")
    if task.arguments:
        raise ValueError(
            f"task.arguments={task.arguments}: task._target_={task.target} takes none; write `def train(config)`"
        )
    called: Callable[[], Any] = function
    return called


def _numbers(metrics: Mapping[str, Any], metric: str) -> dict[str, float]:
    """The metrics that are numbers; others, which nobody could plot or compare, are left out."""
    if metric not in metrics:
        raise ValueError(f"search.metric={metric} is not reported; use one of {sorted(metrics)}")
    if not isinstance(metrics[metric], numbers.Real):
        raise TypeError(
            f"search.metric={metric} was reported as a {type(metrics[metric]).__name__}; "
            "report a number, such as loss.item()"
        )
    return {name: float(value) for name, value in metrics.items() if isinstance(value, numbers.Real)}


def _copy(checkpoint: Checkpoint, folder: Path) -> None:
    """Adds what one worker has saved; temporary folders are private, and a team shares its checkpoints."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = folder.stat().st_mode
    with checkpoint.as_directory() as source:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    folder.chmod(usual)
