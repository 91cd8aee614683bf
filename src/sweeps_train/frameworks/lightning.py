"""A Lightning module as a Ray Train function, which reports validations and resumes from its checkpoints."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray.train
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, Checkpoint
from lightning.pytorch.strategies import StrategyRegistry
from ray.train.lightning import (
    RayDDPStrategy,
    RayDeepSpeedStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
    prepare_trainer,
)

from sweeps_train.frameworks.lightning_continuation import Continuation
from sweeps_train.frameworks.optimizer_values import (
    Values,
    apply_changed_limits,
    apply_changes,
    configured_limits,
    configured_values,
)
from sweeps_train.frameworks.step_log import searched_metrics
from sweeps_train.workers.distributed import Workers

CHECKPOINT_FILE = "checkpoint.ckpt"
"""Name of the checkpoint file; Ray's own callback uses the same one."""
STATE = "sweeps_report"
"""Name of the entry of ``ReportCallback`` in Lightning's checkpoints."""
Training = tuple[Trainer, LightningModule] | tuple[Trainer, LightningModule, LightningDataModule]


def train_function(target: str, make: Callable[[dict[str, Any]], Training]) -> Callable[[dict[str, Any]], None]:
    """Return a Ray Train function for a user's function that makes a ``Trainer``, a module, and possibly its data from
    ``task.arguments``. Messages name that function by its import path.

    Raises:
        ValueError: From the returned function: the user's function returns something else.
    """

    def train(config: dict[str, Any]) -> None:
        # A folder for each worker: by default all trials would share the working folder.
        with tempfile.TemporaryDirectory() as folder:
            _set_trainer_defaults(folder)
            trainer, module, data = _validated(target, make(config))
            trainer.callbacks = _callbacks(trainer)  # type: ignore[attr-defined]
            checkpoint = ray.train.get_checkpoint()
            if checkpoint is None:
                trainer.fit(module, datamodule=data)
            else:
                with checkpoint.as_directory() as saved:
                    # Hyperparameters in it may have any type; the trial itself has written the file.
                    trainer.fit(
                        module, datamodule=data, ckpt_path=str(Path(saved) / CHECKPOINT_FILE), weights_only=False
                    )

    return train


def _set_trainer_defaults(folder: str) -> None:
    """Set defaults for the user's ``Trainer`` through Lightning's environment variables, so that the user's code does
    not depend on Ray. Its strategy ``ddp`` becomes Ray's, which uses the existing processes instead of starting new
    ones."""
    # Where Slurm is installed, Lightning misses srun; Ray has started these processes.
    warnings.filterwarnings("ignore", message="The `srun` command is available")
    os.environ["PL_TRAINER_STRATEGY"] = "ddp"
    os.environ["PL_TRAINER_DEFAULT_ROOT_DIR"] = folder
    os.environ["PL_TRAINER_ENABLE_PROGRESS_BAR"] = "False"
    if Workers.current().device.type == "cpu":
        # A worker without a GPU may still see those of its machine.
        os.environ["PL_TRAINER_ACCELERATOR"] = "cpu"
    environment = RayLightningEnvironment()  # type: ignore[no-untyped-call]
    for name, unused in (("ddp", False), ("ddp_find_unused_parameters_true", True)):
        StrategyRegistry.register(
            name, RayDDPStrategy, override=True, cluster_environment=environment, find_unused_parameters=unused
        )


def _validated(target: str, made: Any) -> tuple[Trainer, LightningModule, LightningDataModule | None]:
    """Check the result of the user's function, and prepare its ``Trainer``.

    Raises:
        ValueError: The result cannot be trained here; the message names the target.
    """
    match made:
        case (Trainer() as trainer, LightningModule() as module):
            data = None
        case (Trainer() as trainer, LightningModule() as module, LightningDataModule() as data):
            pass
        case _:
            kinds = [type(each) for each in (made if isinstance(made, tuple) else (made,))]
            raise ValueError(
                f"task._target_={target} returned {', '.join(f'{kind.__module__}.{kind.__name__}' for kind in kinds)}; "
                "task.framework=lightning needs a tuple of a lightning.pytorch Trainer, a LightningModule and, if its "
                "data is not in the module, a LightningDataModule"
            )
    if not isinstance(trainer.strategy, RayDDPStrategy | RayFSDPStrategy | RayDeepSpeedStrategy):
        raise ValueError(  # noqa: TRY004 - a mistake in the config
            f"task._target_={target}: its Trainer has the strategy {type(trainer.strategy).__name__}, which does not "
            "use the trial's workers; make the Trainer within the function, and leave `strategy` out or give ddp, or "
            "one of ray.train.lightning"
        )
    prepare_trainer(trainer)
    return trainer, module, data


def _callbacks(trainer: Trainer) -> list[Any]:
    """Return the user's callbacks, followed by the one that reports the metrics that they have logged. The first one
    sees the optimizers before any of them changes these, as one that adds parameters that it has unfrozen.

    Checkpoint callbacks without a folder of their own are left out, since each report brings a checkpoint.
    """
    users: list[Any] = list(trainer.callbacks)  # type: ignore[attr-defined]
    saves = any(isinstance(each, Checkpoint) for each in users)
    kept = [each for each in users if getattr(each, "dirpath", None) or not isinstance(each, Checkpoint)]
    return [ChangedValues(), *kept, Continuation(), ReportCallback(saves=saves)]


class ReportCallback(Checkpoint):
    """Reports each validation, or each epoch if there is no validation, with a checkpoint.

    The metrics of a training epoch are complete only after the validation at its end, and after the module's own
    ``on_train_epoch_end``; Lightning calls checkpoint callbacks, such as this one, last. So a validation within an
    epoch is reported at once, and any other at the end of its epoch.
    """

    def __init__(self, *, saves: bool) -> None:
        self._saves, self._is_due = saves, False
        self._seen: set[str] = set()
        """Metrics that were there at a validation before they were there at the end of an epoch."""
        self._of_epoch: set[str] = set()
        """All others, which are logged at the ends of epochs. A resumed ``Trainer`` may first end the epoch before once
        more, without those of its batches."""

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[STATE] = {"seen": sorted(self._seen), "of_epoch": sorted(self._of_epoch)}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let a ``Trainer`` with ``max_steps`` continue with the next epoch after one that was saved at its end.
        Lightning would end that epoch once more, so that later ones have other numbers and so another order, or
        without validation train one more batch in it, and report an odd step."""
        state = checkpoint.get(STATE, {})  # those of earlier releases have none
        self._seen, self._of_epoch = {*state.get("seen", ())}, {*state.get("of_epoch", ())}
        loop = checkpoint["loops"]["fit_loop"]
        batches = loop["epoch_loop.batch_progress"]
        if trainer.max_steps == -1 or not batches["is_last_batch"]:
            return
        for epochs in loop["epoch_progress"].values():
            epochs["completed"] = epochs["processed"]
        batches.update(current=dict.fromkeys(batches["current"], 0), is_last_batch=False)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        self._is_due = True
        self._seen |= trainer.callback_metrics.keys() - self._of_epoch
        if trainer.is_last_batch:
            return
        # Metrics of the previous epoch are still there.
        new = {name: value for name, value in trainer.callback_metrics.items() if name not in self._of_epoch}
        # Otherwise they come at the end of the epoch. The first worker decides: only it may have logged a metric.
        is_complete = new.keys() >= {*searched_metrics()} - {"epoch", "step"}
        if trainer.strategy.broadcast(is_complete):
            self._report(trainer, new)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._of_epoch |= trainer.callback_metrics.keys() - self._seen
        if self._is_due or not _validates(trainer):
            self._report(trainer, trainer.callback_metrics)

    def _report(self, trainer: Trainer, metrics: Mapping[str, Any]) -> None:
        self._is_due = False
        # A sharded module is saved by all workers, each on its own node, into the folder that the first one names.
        saved = Path(trainer.strategy.broadcast(tempfile.mkdtemp() if trainer.is_global_zero else ""))
        saved.mkdir(exist_ok=True)
        if self._saves:
            trainer.save_checkpoint(saved / CHECKPOINT_FILE)
        has_checkpoint = trainer.local_rank == 0 and any(saved.iterdir())  # a whole module is on the first node alone
        position = {"epoch": trainer.current_epoch, "step": trainer.global_step}
        checkpoint = ray.train.Checkpoint(str(saved)) if has_checkpoint else None
        ray.train.report({**metrics, **position}, checkpoint=checkpoint)
        if trainer.local_rank == 0:
            shutil.rmtree(saved, ignore_errors=True)


def _validates(trainer: Trainer) -> bool:
    """Whether a trainer has validation data. Until they are loaded, which may be for a later epoch, their number of
    batches is unknown."""
    return trainer.enable_validation if trainer.val_dataloaders is None else any(trainer.num_val_batches)


class ChangedValues(Callback):
    """Callback that sets a resumed module's optimizers, and the limits of its schedules, to the values that
    ``configure_optimizers`` returns in this run."""

    def __init__(self) -> None:
        self._before: list[Values] = []
        self._now: list[Values] = []
        self._limits_before: list[Values] = []
        self._limits: list[Values] = []

    def state_dict(self) -> dict[str, Any]:
        return {"configured": self._now, "limits": self._limits}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before, self._limits_before = state_dict["configured"], state_dict.get("limits", [])

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._now = [configured_values(each) for each in trainer.optimizers]  # not restored yet
        self._limits = [configured_limits(each.scheduler) for each in trainer.lr_scheduler_configs]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer, before, now in zip(trainer.optimizers, self._before, self._now, strict=False):
            schedulers = [each.scheduler for each in trainer.lr_scheduler_configs]
            own = [each for each in schedulers if getattr(each, "optimizer", None) is optimizer]
            apply_changes(optimizer, own, before, now)
        limits = zip(trainer.lr_scheduler_configs, self._limits_before, self._limits, strict=False)
        for each, before, now in limits:
            apply_changed_limits(each.scheduler, before, now)
