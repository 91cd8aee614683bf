"""Runs a user's Ray Train function as a trial, without any change to the function.

Calls such as ``ray.train.report`` and ``ray.train.get_checkpoint`` go through an object that Ray Train keeps in each
worker. Here it is replaced by one that calls the reporter at once, without waiting to be polled by Ray's controller,
and saves checkpoints in the trial's folder, where the trial's next attempt finds them.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ray.train import Checkpoint

from sweeps_train.checkpoints.checkpoint import (
    FILES,
    checkpoint_path,
    complete_checkpoints,
    prepare_resume,
    write_json,
)
from sweeps_train.checkpoints.checkpoint_metrics import METRICS_FILE, read_metrics
from sweeps_train.checkpoints.integrity import finish
from sweeps_train.checkpoints.kept_checkpoints import remove_superseded
from sweeps_train.compat.ray_train import (
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    DistributedTrainFnUtils,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    broadcast_in_report,
    replaced_train_fn_utils,
)
from sweeps_train.config import Checkpoint as CheckpointConfig
from sweeps_train.config import EstimatorConfig, FunctionConfig, FunctionTask
from sweeps_train.config.better import Objective, as_objectives
from sweeps_train.devices.system import begin_measurement, device_in_use, system_metrics
from sweeps_train.estimators.training import estimator_function
from sweeps_train.files.atomic_write import unfinished
from sweeps_train.frameworks.bound_function import bind_function
from sweeps_train.frameworks.mlflow_runs import OwnRuns
from sweeps_train.frameworks.ray_data import trial_shards
from sweeps_train.frameworks.script import script_function
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reported_metrics import SYSTEM_METRICS, as_step, metrics_in
from sweeps_train.reports.reporter import Reporter, SilentReporter, Stop
from sweeps_train.steps.random_state import seed_all
from sweeps_train.workers.own_folder import own_folder, working_in
from sweeps_train.workers.process_state import process_state_restored
from sweeps_train.workers.trial_threads import own_threads, trial_of_caller

ReportingConfig = FunctionConfig | EstimatorConfig
"""Config of a training whose own code sends the reports."""
PROGRESS_FILE = "progress.json"
STEP_METRICS = ("step", "training_iteration")
"""Metrics in which a function may report its number of steps; otherwise its reports are counted."""
SYSTEM_EVERY_S = 10.0
"""Minimum seconds of training between two reports with system metrics that the search does not read."""

HOW_TO_REPORT = {
    "ray_train": "call ray.train.report({{{metric}: ...}}) in it, on all workers",
    "huggingface": "its Trainer was never evaluated: set eval_strategy, and a number of steps that it reaches",
    "lightning": "its Trainer ended before its first validation: lower val_check_interval, or raise max_steps",
    "script": "print a line of JSON with {metric} on the first worker",
}
"""Advice for a training of each framework that has not reported anything."""


def run_function(
    config: ReportingConfig,
    *,
    reporter: Reporter | None,
    checkpoint_folder: str,
    metric: str | Sequence[str],
    mode: str | Sequence[str],
    on_prepared: Callable[[], object] = lambda: None,
) -> None:
    """Run a user's function, or fit an estimator, until it returns or the reporter requests a stop. Every worker of a
    Ray Train group calls it.

    A function cannot be asked to stop. Instead, an exception is raised from the same call of ``ray.train.report`` on
    all workers, so that none of them waits for another one.

    Args:
        config: The function or estimator and its arguments, the same on all workers.
        reporter: Receives metrics and checkpoints; used on rank 0 only.
        checkpoint_folder: Folder of the trial's checkpoints, on a file system that all workers share.
        metric: Metric by which the best checkpoint is chosen, see ``best_checkpoint``; every report must have it, of
            several the first.
        mode: Whether ``min`` or ``max`` of it is best.
        on_prepared: Called once, when the function or estimator is imported and is about to run.

    Raises:
        ValueError: The function cannot be called, or does not report what the search reads.
        TypeError: A reported metric that the search reads is not a number.
    """
    folder = Path(checkpoint_folder).absolute()
    objectives = as_objectives(metric, mode)
    function = _function_of(config, objectives[0])
    task = config.task if isinstance(config, FunctionConfig) else None
    # Threads that the import has started belong to all trials.
    with own_threads(), trial_shards(task) as shards:
        trains_here = task is None or task.framework != "script"
        utils = TrialTrainFnUtils(config.checkpoint, reporter, folder, objectives, shards, config.needed, trains_here)
        seed_all(config.seed, utils.rank)
        on_prepared()
        try:
            with (
                replaced_train_fn_utils(utils),
                process_state_restored(),
                utils.runs.kept(),
                _in_own_folder(task, folder),
            ):
                function()
        except BaseException:  # StopRequested, or an error of a function that has caught it
            if not utils.has_stopped:
                raise
        if utils.has_stopped:
            return
        if not utils.has_reported:
            to_do = HOW_TO_REPORT["ray_train" if task is None else task.framework].format(
                metric=repr(objectives[0].metric)
            )
            raise ValueError(f"task._target_={config.task.target} returned without a report; {to_do}")
        utils.end()


@contextlib.contextmanager
def _in_own_folder(task: FunctionTask | None, checkpoint_folder: Path) -> Iterator[None]:
    """Run a user's function in the trial's own folder, or in the one that its config names."""
    if task is None:
        yield
        return
    chosen = task.working_folder
    sys.path[:] = [str(Path.cwd()) if entry == "" else entry for entry in sys.path]  # for later imports
    with working_in(own_folder(checkpoint_folder) if chosen is None else Path(chosen).expanduser()):
        yield


def _function_of(config: ReportingConfig, objective: Objective) -> Callable[[], Any]:
    """Return the function that Ray Train calls."""
    if isinstance(config, EstimatorConfig):
        return estimator_function(config, objective)
    is_script = config.task.framework == "script"
    return script_function(config.task, objective.metric) if is_script else bind_function(config.task)


class StopRequested(BaseException):
    """Raised in a user's function to end it; like ``KeyboardInterrupt``, it passes through ``except Exception``."""


@dataclass(frozen=True)
class FunctionProgress(Progress):
    """Position of a user's function according to its reports; ``seconds`` is the time between them."""

    evaluations: int = 0
    """Number of reports."""

    def resources(self) -> dict[str, float]:
        return {"steps": self.step, "evaluations": self.evaluations, "seconds": self.seconds}


class TrialTrainFnUtils(DistributedTrainFnUtils):
    """Receives a user function's calls of ``ray.train``."""

    def __init__(
        self,
        kept: CheckpointConfig,
        reporter: Reporter | None,
        root: Path,
        objectives: Sequence[Objective],
        shards: Mapping[str, Any] = MappingProxyType({}),
        needed: Sequence[str] = (),
        trains_here: bool = False,
    ):
        """The reporter is used on rank 0 only. ``shards`` are this worker's parts of Ray Data sets, by name; ``needed``
        are further metrics that the search reads, which the first report must have; ``trains_here`` is whether this
        process trains, so that its use of the machine is reported."""
        self._kept, self._root, self._objectives, self._shards = kept, root, objectives, shards
        self._metric, self._trial = objectives[0].metric, trial_of_caller()
        self._has_noted = False
        self.searched = (self._metric, *needed)
        """Metrics that the search reads."""
        begin_measurement(device_in_use())
        self._measured_here = SYSTEM_METRICS if trains_here else ()
        self._system_every_s = 0.0 if {*SYSTEM_METRICS} & {*self.searched} else SYSTEM_EVERY_S
        self._system_due = 0.0 if trains_here else math.inf
        """Seconds of training from which a report measures this process."""
        self.rank: int = self.get_context().get_world_rank()
        self.reporter: Reporter = reporter if reporter is not None and self.rank == 0 else SilentReporter()
        """Receiver of logs and notes, which also asks for stops; reports go through ``report_at``."""
        self.runs = OwnRuns(root, self.rank)
        """MLflow runs that the function starts."""
        self.progress = FunctionProgress()
        """Position at the last report."""
        self.has_stopped = False
        """Whether a report has asked the function to end."""
        self._metrics: dict[str, float] = {}
        """Metrics of the last report, on rank 0."""
        self._newest = self._find_checkpoint()
        """The newest checkpoint to which this worker has contributed, or from which it was resumed."""
        if self._newest is not None:
            progress = json.loads((self._newest / PROGRESS_FILE).read_text(encoding="utf-8"))
            self.progress = FunctionProgress(**progress)
            self._metrics = read_metrics(self._newest) or {}
            if self._metrics:  # again: the process may have died between saving and reporting
                self.reporter.report(self.progress, self._metrics, str(self._newest / FILES), done=False)
        self._resumed = time.perf_counter()

    def _find_checkpoint(self) -> Path | None:
        newest = prepare_resume(self._root, self.reporter.note) if self.rank == 0 else None
        name = self.broadcast_from_rank_zero(newest.name if newest is not None else None)
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
        """Implements ``ray.train.report``: all workers synchronise here and learn whether to stop."""
        self._refuse_other_trials("ray.train.report")
        if validation:
            raise ValueError("ray.train.report(validation=...): a search cannot wait for it; validate in the function")
        measured = None
        if self.rank == 0:
            numbers = self._numbers(metrics)
            measured = self._next_step(numbers), numbers

        def save(folder: Path) -> None:
            assert checkpoint is not None
            source = (
                checkpoint if checkpoint_upload_fn is None else checkpoint_upload_fn(checkpoint, folder.parent.name)
            )
            _copy(source, folder)
            if delete_local_checkpoint_after_upload:
                shutil.rmtree(checkpoint.path, ignore_errors=True)

        self.report_at(measured, save if checkpoint is not None else None)

    def report_at(self, measured: tuple[int, dict[str, float]] | None, save: Callable[[Path], None] | None) -> None:
        """Report a step and its metrics, given on rank 0; all workers synchronise here and learn whether to stop, after
        which nothing is reported any more. ``save`` adds this worker's files to the folder of a checkpoint, if it has
        any."""
        if self.has_stopped:
            raise StopRequested
        seconds = self._seconds
        # Not yet under its final name: only rank 0 knows the step.
        folder = unfinished(self._root / f"step-report{self.progress.evaluations + 1}")
        if save is not None:
            save(folder / FILES)
        decided = None
        if measured is not None:
            step, self._metrics = measured
            decided = step, self.reporter.should_stop(can_save=False)
        step, stop = broadcast_in_report(decided)
        if stop == Stop.DISCARD:
            self.has_stopped = True
            raise StopRequested
        evaluations = self.progress.evaluations + (step > 0)
        self.progress = FunctionProgress(step=step, evaluations=evaluations, seconds=seconds)
        if save is not None:
            self._newest = checkpoint_path(self._root, step)
        checkpoint = None
        if self.rank == 0:
            checkpoint = self._finish(folder)
            self._log_own_runs()
            self._report(checkpoint)
        # Asked again, since the reporter may have waited for a decision about the report.
        ends = max(stop, broadcast_in_report(self.reporter.should_stop(can_save=checkpoint is not None)))
        if save is not None:
            self._keep_own(folder)
        if ends:
            self.has_stopped = True
            raise StopRequested
        self._resumed = time.perf_counter()

    @property
    def _seconds(self) -> float:
        """Seconds of training so far, over all attempts."""
        return self.progress.seconds + time.perf_counter() - self._resumed

    def _refuse_other_trials(self, called: str) -> None:
        """
        Raises:
            RuntimeError: The calling thread belongs to an earlier trial of this process.
        """
        if trial_of_caller() not in (None, self._trial):
            raise RuntimeError(
                f"{called}: not recorded, since a thread called it that an earlier trial has left in this process "
                "(scaling.isolation=warm): end threads before the function returns, start pools of threads within it, "
                "or set scaling.isolation=process"
            )

    def _report(self, checkpoint: str | None) -> None:
        """Report the metrics of the current step. An evaluation before the first step is only recorded, so that an
        untrained model does not compete."""
        if self.progress.step > 0:
            self.reporter.report(self.progress, self._metrics, checkpoint, done=False)
            return
        self.reporter.log(self.progress, self._metrics)
        if checkpoint is not None:
            self.reporter.checkpoint(self.progress, {}, checkpoint)

    def log_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record metrics of a step between two reports; see ``step_log.py``."""
        self._refuse_other_trials("log_step")
        self.reporter.log(replace(self.progress, step=step), metrics_in(metrics).numbers)

    def _log_own_runs(self) -> None:
        """Record the metrics that the function has logged to MLflow; a metric that it reports under the same name takes
        precedence."""
        for step, values in self.runs.new(self.progress.step, {*self._metrics, *self.searched}):
            self.log_step(step, values)

    def _numbers(self, metrics: Mapping[Any, Any]) -> dict[str, float]:
        """Select the metrics that are numbers; others cannot be plotted or compared, and are left out with a note.

        Raises:
            ValueError: A metric that the search reads is missing, or a name is not a text.
            TypeError: A metric that the search reads is not a number.
        """
        found, system = metrics_in(metrics), self._system_metrics()
        first = self.progress.evaluations == 0
        for name in self.searched:
            if name in found.others:
                raise TypeError(
                    f"{self._key_of(name)} was reported as a {found.others[name]}; report a number, such as loss.item()"
                )
            is_demanded = name == self._metric or (first and name not in self._measured_here)
            if is_demanded and name not in {*found.numbers, *system}:
                reported = sorted({**found.numbers, **found.others})
                raise ValueError(f"{self._key_of(name)} is not reported; use one of {reported}")
        if found.others and not self._has_noted:
            self._has_noted = True
            others = ", ".join(f"{name} ({kind})" for name, kind in found.others.items())
            self.reporter.note(f"reported values that are not numbers are not recorded: {others}")
        return system | found.numbers

    def _system_metrics(self) -> dict[str, float]:
        """Measure this process if that is due; otherwise empty."""
        if self._seconds < self._system_due:
            return {}
        self._system_due = self._seconds + self._system_every_s
        return {name: value for name, value in system_metrics(device_in_use()).items() if math.isfinite(value)}

    def _key_of(self, metric: str) -> str:
        return f"search.metric={metric}" if metric == self._metric else f"{metric}, which the search reads,"

    def _next_step(self, metrics: Mapping[str, float]) -> int:
        """Return the reported step, or the step after the last one; metrics are stored by step, so steps must not
        decrease.

        Raises:
            ValueError: The reported step is not a whole number.
        """
        name = next((name for name in STEP_METRICS if name in metrics), None)
        step = None if name is None else as_step(name, metrics[name])
        if step == 0 and self.progress.step == 0:
            return 0
        return max(step or 0, self.progress.step + 1)

    def _keep_own(self, folder: Path) -> None:
        """Give this node's copy of a checkpoint its final name if rank 0 is on another node, where it renamed only its
        own copy."""
        assert self._newest is not None
        if self.get_context().get_local_rank() == 0:
            try:
                folder.rename(self._newest)
            except OSError:
                return  # rank 0 has renamed it: the nodes share the folder
            if not self._has_noted:
                self._has_noted = True
                sys.stderr.write(
                    "warning: this node's files of checkpoints are lost when the trial continues elsewhere: with an "
                    "output_dir in an object store, only those of the first worker's node are kept; let the first "
                    "worker save all\n"
                )

    def _finish(self, folder: Path) -> str | None:
        """Complete the checkpoint to which all workers have added their files, and return its path; None if no worker
        has any."""
        if not folder.exists():
            return None
        path = checkpoint_path(self._root, self.progress.step)
        # A checkpoint from before the first step gets no metrics, so that it is never chosen as the best one.
        self._complete(folder, path, self.progress, self._metrics if self.progress.step > 0 else None)
        self._remove_superseded(finished=False)
        return str(path / FILES)

    def _complete(self, folder: Path, path: Path, progress: FunctionProgress, metrics: dict[str, float] | None) -> None:
        write_json(folder / METRICS_FILE, metrics)
        write_json(folder / PROGRESS_FILE, asdict(progress))
        finish(folder, path)

    @property
    def has_reported(self) -> bool:
        """Whether there was a report, on rank 0. Reports of earlier attempts count, as do those of another training
        from whose state this one continues."""
        return self.rank != 0 or bool(self._metrics) or self.progress.evaluations > 0

    @property
    def newest(self) -> Path | None:
        """Folder of the newest checkpoint that was saved, or from which the trial resumed."""
        return None if self._newest is None else self._newest / FILES

    @property
    def newest_step(self) -> int | None:
        """Step of the newest checkpoint; None if there is none."""
        return None if self._newest is None else int(self._newest.name.removeprefix("step-"))

    def add_checkpoint(
        self, progress: FunctionProgress, metrics: dict[str, float] | None, save: Callable[[Path], None]
    ) -> None:
        """Save a checkpoint of a step that was reported before, with its metrics, or that lies between two reports; on
        rank 0. It replaces an earlier checkpoint of the same step. ``save`` adds the files to the checkpoint's
        folder."""
        path = checkpoint_path(self._root, progress.step)
        folder = unfinished(path)
        save(folder / FILES)
        self._complete(folder, path, progress, metrics)
        if self._newest is None or self._newest.name < path.name:
            self._newest = path
        self.reporter.checkpoint(progress, metrics or {}, str(path / FILES))
        self._remove_superseded(finished=False)

    def end(self) -> None:
        """Report the end of the training: its last report is the trial's result. If the only report was of step 0, the
        training does not count steps, and the report counts as step 1."""
        if self.progress.evaluations == 0:
            self.progress = replace(self.progress, step=1, evaluations=1)
        if self.rank == 0:
            self._log_own_runs()
            self.reporter.report(self.progress, self._metrics, None, done=True)
            if complete_checkpoints(self._root):
                self._remove_superseded(finished=True)

    def _remove_superseded(self, *, finished: bool) -> None:
        remove_superseded(self._root, self._kept.keep, self._objectives, finished=finished)

    def get_checkpoint(self) -> Checkpoint | None:
        if self._newest is None:
            return None
        while not self._newest.exists():  # rank 0 is about to complete it
            time.sleep(0.01)
        return Checkpoint(str(self._newest / FILES))

    def get_all_reported_checkpoints(
        self,
        consistency_mode: CheckpointConsistencyMode = CheckpointConsistencyMode.VALIDATED,
        timeout_s: float | None = None,
    ) -> list[ReportedCheckpoint]:
        """Return the checkpoints that have been kept."""
        return [
            ReportedCheckpoint(
                Checkpoint(str(path / FILES)), read_metrics(path) or {}, ReportedCheckpointStatus.COMMITTED
            )
            for path in complete_checkpoints(self._root)
        ]

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        name = dataset_info.dataset_name
        if name not in self._shards:
            has = f"task.datasets has {', '.join(self._shards)}" if self._shards else "task.datasets is empty"
            raise ValueError(
                f"ray.train.get_dataset_shard({name!r}): {has}; name the function that makes it: "
                f"task.datasets.{name}._target_=module.make"
            )
        return self._shards[name]


def _copy(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the files that one worker has saved, with the usual permissions, since temporary folders are private."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = folder.stat().st_mode
    with checkpoint.as_directory() as source:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    folder.chmod(usual)
