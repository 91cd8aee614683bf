"""Continuation of a Lightning training from its checkpoint: with the next batch of its epoch, the next random numbers,
the metrics that schedules wait for, and a decision to stop.

Lightning restores how many batches an epoch has had, but takes the next ones from the epoch's beginning, unless a
loader has a state of its own; and it restores neither random numbers nor metrics nor ``should_stop``. So a trial that
pauses within its epochs would train on the same few batches again and again, and one that pauses at their ends would
never lower its rate on a plateau.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, LearningRateFinder, StochasticWeightAveraging
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.parsing import lightning_setattr
from torch.utils.data import DataLoader

from sweeps_train.steps.random_state import random_state, set_random_state
from sweeps_train.workers.distributed import Workers

STATE = "sweeps_continuation"
"""Name of the entry in Lightning's checkpoints."""
FOUND = "sweeps_found_rate"
"""Name of the entry of a ``FindsOnce``."""
Flags = dict[tuple[str, str], bool]
"""Flags by the name of a parameter or layer, and the attribute."""


class Continuation(Callback):
    """Callback that saves, for each worker, its random state, its metrics and the positions of its loaders, and lets a
    resumed ``Trainer`` continue there."""

    def __init__(self) -> None:
        self._random: dict[str, Any] | None = None
        """Random state to continue with, until the training begins."""
        self._positions: Iterator[dict[str, Any]] = iter(())
        """Positions to continue at, in the order in which Lightning prepares the loaders."""
        self._metrics: dict[str, Any] = {}
        """Metrics that there were when the checkpoint was saved."""
        self._due: list[int] = []
        """Schedules that wait for a metric and had not yet stepped when the checkpoint was saved at the end of an
        epoch."""
        self._flags: Flags = {}
        """Flags of the module before the training."""
        self._changed: Flags = {}
        """The flags that the training had changed when the checkpoint was saved."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        strategy: Any = trainer.strategy
        process = strategy.process_dataloader

        def process_dataloader(loader: Any) -> Any:
            processed = process(loader)
            return self._prepared(processed, trainer) if trainer.training else processed

        strategy.process_dataloader = process_dataloader  # Lightning then begins to read, before `on_train_start`
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        for each in callbacks:
            if isinstance(each, FindsOnce):  # a global variable, in an earlier trial of this process
                each.known = None
            elif isinstance(each, LearningRateFinder):  # which may be of a class of the user's own
                each.__class__ = type(type(each).__name__, (FindsOnce, type(each)), {})

    def _prepared(self, loader: Any, trainer: Trainer) -> Any:
        if self._random is not None:
            set_random_state(self._random, trainer.strategy.root_device)
        if not isinstance(loader, DataLoader) or hasattr(loader, "state_dict"):
            return loader
        return positioned(loader, trainer, next(self._positions, None), self._random)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._flags = _flags(pl_module)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._random = None
        _set_flags(pl_module, self._changed)  # a callback may freeze layers at each start, and unfreeze them but once
        epoch = trainer.fit_loop.epoch_loop
        if epoch.batch_progress.current.ready == 0:
            epoch.on_iteration_done()  # with `max_steps` Lightning would first end a batch that it does not have
        trainer.callback_metrics.update(self._metrics)
        if trainer.fit_loop.restarted_mid_epoch:
            _continue_averaging(trainer, pl_module)
        for index in self._due:
            schedule: Any = trainer.lr_scheduler_configs[index]
            if schedule.monitor in self._metrics:
                pl_module.lr_scheduler_step(schedule.scheduler, self._metrics[schedule.monitor])
        self._due = []

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.fit_loop.restarting:
            # Nothing is restored any more. Lightning would take the whole rest of the epoch for that, at whose end
            # schedules that wait for a metric would not take their step.
            trainer.fit_loop.on_iteration_done()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        workers = Workers(trainer.global_rank, trainer.world_size, trainer.strategy.root_device)
        loaders = CombinedLoader(trainer.train_dataloader).flattened
        positions = [each.position() for each in loaders if isinstance(each, PositionedLoader)]
        for later in positions[1:] if trainer.is_last_batch else ():
            later["random"] = None  # the numbers after those that the first loader draws when the epoch begins
        own = {
            "random": random_state(workers.device),
            "loaders": positions,
            "metrics": {name: torch.as_tensor(value).cpu() for name, value in trainer.callback_metrics.items()},
        }
        of_workers = workers.broadcast(workers.gather(own))
        changed = {key: flag for key, flag in _flags(pl_module).items() if self._flags.get(key, flag) != flag}
        checkpoint[STATE] = {
            "should_stop": trainer.should_stop,
            "workers": of_workers,
            "due": _due(trainer),
            "changed": changed,
        }

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if STATE not in checkpoint:  # of an earlier release
            return
        trainer.should_stop = checkpoint[STATE]["should_stop"]
        of_workers = checkpoint[STATE]["workers"]
        is_alike = len(of_workers) == trainer.world_size
        self._metrics = of_workers[trainer.global_rank if is_alike else 0].get("metrics", {})
        self._due, self._changed = checkpoint[STATE].get("due", []), checkpoint[STATE].get("changed", {})
        if is_alike:
            self._random = of_workers[trainer.global_rank]["random"]
            self._positions = iter(of_workers[trainer.global_rank]["loaders"])
        else:  # a range of workers; the position is as near as it can be
            self._positions = iter([{**each, "random": None} for each in of_workers[0]["loaders"]])


def _continue_averaging(trainer: Trainer, module: LightningModule) -> None:
    """Prepare the averaging of weights amid an epoch, as Lightning does only where one begins. The statistics of
    batches, which it clears there in the last epoch, stay as they are."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    for each in callbacks:
        if isinstance(each, StochasticWeightAveraging):
            statistics = {name: buffer.clone() for name, buffer in module.named_buffers()}
            each.on_train_epoch_start(trainer, module)
            for name, buffer in module.named_buffers():
                buffer.copy_(statistics[name])


def _flags(module: LightningModule) -> Flags:
    """Return which parameters are trained, and which layers track statistics of their batches."""
    trained = {(name, "requires_grad"): each.requires_grad for name, each in module.named_parameters()}
    layers = [(name, getattr(each, "track_running_stats", None)) for name, each in module.named_modules()]
    return trained | {(name, "track_running_stats"): flag for name, flag in layers if flag is not None}


def _set_flags(module: LightningModule, flags: Flags) -> None:
    owners: dict[str, Any] = {**dict(module.named_modules()), **dict(module.named_parameters())}
    for (name, attribute), flag in flags.items():
        if name in owners:
            setattr(owners[name], attribute, flag)


def _due(trainer: Trainer) -> list[int]:
    """Return the indices of the schedules that wait for a metric and are due at the end of the current epoch: Lightning
    steps them after all callbacks, and so after a checkpoint is saved."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    is_at_end = epochs.processed > epochs.completed and trainer.is_last_batch
    if not is_at_end or not trainer.lightning_module.automatic_optimization:
        return []
    return [
        index
        for index, each in enumerate(trainer.lr_scheduler_configs)
        if each.reduce_on_plateau and each.interval == "epoch" and (epochs.completed + 1) % each.frequency == 0
    ]


class FindsOnce(LearningRateFinder):
    """A finder that finds a rate in a trial's first attempt alone. Lightning's would do so in each, with the trained
    weights, and then begin the training anew, since it loads a checkpoint of its own afterwards."""

    known: dict[str, float] | None = None
    """The rate by the module's attributes that have it; None until it is found, or a checkpoint is loaded."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.known is None:
            super().on_fit_start(trainer, pl_module)
            rate = self.optimal_lr.suggestion() if self.optimal_lr else None
            values = {**pl_module.hparams, **vars(pl_module)}
            self.known = {name: value for name, value in values.items() if isinstance(value, float) and value == rate}
            return
        for name, rate in self.known.items():
            lightning_setattr(pl_module, name, rate)
            for group in (group for each in trainer.optimizers for group in each.param_groups):
                group["lr"] = rate

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(trainer, pl_module, checkpoint)
        checkpoint[FOUND] = self.known

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        self.known = checkpoint.get(FOUND) or {}


class PositionedLoader(DataLoader[Any]):
    """A loader that knows its position in an epoch, and may begin with a later batch than the first one."""

    # Names that a user's own class of loaders hardly has.
    _trainer: Any
    """The Lightning ``Trainer``, of whose progress some types are unknown."""
    _begin: dict[str, Any] | None
    """Position of the first batch; until this was returned, each iteration begins there."""
    _random_there: dict[str, Any] | None
    """Random state of the training at this position."""
    _random_before: dict[str, Any] | None
    """Random state at the beginning of the epoch, from which its order follows."""
    _had: int
    """Number of batches that the epoch has had."""
    _persists: bool = False
    """Whether processes that persist from epoch to epoch read ahead; their start draws random numbers."""
    _persisted_before: bool = False
    """Whether they did so at the beginning of the epoch."""

    def __iter__(self) -> Any:
        device = self._trainer.strategy.root_device
        self._had = 0
        if self._begin is not None:
            begin = self._begin["random"] or random_state(device)
            if self._begin.get("persisted") and not self._persists:
                super().__iter__()  # starts them
                self._persists = True
            self._had = self._begin["count"]
            set_random_state(begin, device)
            _set_epoch(self, self._trainer.fit_loop.epoch_progress.current.processed)  # Lightning does so only later
        self._random_before, self._persisted_before = random_state(device), self._persists
        batches = super().__iter__()
        self._persists = self.persistent_workers
        for _ in range(self._had):
            next(batches, None)
        if self._had > 0:
            _set_random(self._random_there, device)
        return self._counted(batches)

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self._begin = None
            self._had += 1
            yield batch
        self._begin = None  # nothing was left, for example of fewer but larger batches

    def position(self) -> dict[str, Any]:
        """Return the number of batches that the current epoch has had, and the random state at its beginning."""
        if self._trainer.is_last_batch:  # the next epoch begins here
            now = random_state(self._trainer.strategy.root_device)
            return {"count": 0, "random": now, "persisted": self._persists}
        # Lightning reads one batch ahead from a loader without a length.
        count = min(self._had, self._trainer.fit_loop.batch_idx + 1)
        return {"count": count, "random": self._random_before, "persisted": self._persisted_before}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: ``Continuation`` saves the positions of all workers, Lightning only that of the first.
        Without this method it would warn that the epoch begins again."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load nothing; see ``state_dict``."""


def positioned(
    loader: DataLoader[Any], trainer: Trainer, begin: dict[str, Any] | None, random_there: dict[str, Any] | None
) -> PositionedLoader:
    """Return a copy of a loader, which may be of a class of the user's own, that knows its position."""
    made: Any = copy.copy(loader)
    made.__class__ = type(type(loader).__name__, (PositionedLoader, type(loader)), {})
    vars(made).update(_trainer=trainer, _begin=begin, _random_there=random_there)
    return made  # type: ignore[no-any-return]


def _set_random(state: dict[str, Any] | None, device: Any) -> None:
    if state is not None:
        set_random_state(state, device)


def _set_epoch(loader: DataLoader[Any], epoch: int) -> None:
    """Set the epoch of samplers whose order follows from it."""
    for each in (loader, loader.batch_sampler):
        sampler: Any = getattr(each, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
