"""A Lightning module as a Ray Train function: reports each validation, and goes on from its own checkpoints."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray.train
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint, LambdaCallback
from lightning.pytorch.strategies import StrategyRegistry
from ray.train.lightning import (
    RayDDPStrategy,
    RayDeepSpeedStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
    prepare_trainer,
)

from sweeps_train.distributed import Workers

CHECKPOINT_FILE = "checkpoint.ckpt"
"""As Ray's own callback names it, for whoever reads a trial's checkpoint later."""
Training = tuple[Trainer, LightningModule] | tuple[Trainer, LightningModule, LightningDataModule]


def train_function(target: str, make: Callable[[dict[str, Any]], Training]) -> Callable[[dict[str, Any]], None]:
    """
    Args:
        target: Where the function was found, for messages.
        make: The user's function, which makes a ``Trainer``, a module, and perhaps its data from ``task.arguments``.
    """

    def train(config: dict[str, Any]) -> None:
        # A folder for each worker: trials share the one that Lightning would take, the current one.
        with tempfile.TemporaryDirectory() as folder:
            _let_trainers_join_the_workers(folder)
            trainer, module, data = _checked(target, make(config))
            trainer.callbacks = _callbacks(trainer, Path(folder))  # type: ignore[attr-defined]
            checkpoint = ray.train.get_checkpoint()
            if checkpoint is None:
                trainer.fit(module, datamodule=data)
            else:
                with checkpoint.as_directory() as saved:
                    # It may hold the module's hyperparameters, of any type; the trial itself has written it.
                    trainer.fit(
                        module, datamodule=data, ckpt_path=str(Path(saved) / CHECKPOINT_FILE), weights_only=False
                    )

    return train


def _let_trainers_join_the_workers(folder: str) -> None:
    """What the user's ``Trainer`` does not say is said by Lightning's own environment variables, so that it need know
    nothing of Ray; and its ``ddp`` is Ray's, which takes the processes as they are instead of starting some."""
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


def _checked(target: str, made: Any) -> tuple[Trainer, LightningModule, LightningDataModule | None]:
    """
    Raises:
        ValueError: It is not what can be trained here; the message names the target.
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
                "task.framework=lightning wants a tuple of a lightning.pytorch Trainer, a LightningModule and, if its "
                "data are not in the module, a LightningDataModule"
            )
    if not isinstance(trainer.strategy, RayDDPStrategy | RayFSDPStrategy | RayDeepSpeedStrategy):
        raise ValueError(  # noqa: TRY004 - a mistake in the config
            f"task._target_={target}: its Trainer has the strategy {type(trainer.strategy).__name__}, which knows "
            "nothing of the trial's workers; make the Trainer within the function, and leave `strategy` out or give "
            "ddp, or one of ray.train.lightning"
        )
    prepare_trainer(trainer)
    return trainer, module, data


def _callbacks(trainer: Trainer, folder: Path) -> list[Any]:
    """The user's own, and ours as the last: it reports what the others have logged.

    A checkpoint callback that has no folder of its own is not needed, since each report brings its checkpoint.
    """
    users: list[Any] = list(trainer.callbacks)  # type: ignore[attr-defined]
    saves = any(isinstance(each, Checkpoint) for each in users)

    def report(trainer: Trainer) -> None:
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        saved = Path(tempfile.mkdtemp(dir=folder))
        if saves:
            trainer.save_checkpoint(saved / CHECKPOINT_FILE)
        # With most strategies the first worker writes alone.
        has_one = any(saved.iterdir())
        ray.train.report(
            metrics,
            checkpoint=ray.train.Checkpoint(str(saved)) if has_one else None,
            delete_local_checkpoint_after_upload=has_one,
        )

    def after_validation(trainer: Trainer, _: LightningModule) -> None:
        if not trainer.sanity_checking:
            report(trainer)

    def after_epoch(trainer: Trainer, _: LightningModule) -> None:
        if not any(trainer.num_val_batches):
            report(trainer)

    kept = [each for each in users if getattr(each, "dirpath", None) or not isinstance(each, Checkpoint)]
    return [*kept, LambdaCallback(on_validation_end=after_validation, on_train_epoch_end=after_epoch)]
