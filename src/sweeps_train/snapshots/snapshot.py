"""The snapshot of a training: checkpoint files in shared memory that its workers overwrite together.

When the first snapshot is taken, the files are laid out as those of any checkpoint. Afterwards each worker copies its
own tensors, or its shards of them, and the training continues: nothing is gathered, allocated or formatted, and no
worker waits for another one. Workers on the first worker's machine copy to places in the files, which are mapped into
their memory. Others copy into separate memory, from which the parts are sent to their places during the training.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from sweeps_train.checkpoints.checkpoint import write_json, write_training_config
from sweeps_train.checkpoints.checkpoint_metrics import METRICS_FILE
from sweeps_train.checkpoints.training_state import WorkerState, own_tensors, write_state
from sweeps_train.compat.torch import local_shard
from sweeps_train.config import TrainingConfig
from sweeps_train.devices.device_operations import copy_all, is_accelerator, pins_memory
from sweeps_train.files.tensor_file import TensorSpec, spec_of
from sweeps_train.reports.progress import Progress
from sweeps_train.snapshots.connection import HolderConnection, mark_changed, read_identity
from sweeps_train.snapshots.layout import (
    InFile,
    Share,
    Tensors,
    buffers,
    create_files,
    find_weights,
    map_files,
    named_apart,
)
from sweeps_train.snapshots.link import link_workers
from sweeps_train.snapshots.page_lock import PageLock
from sweeps_train.steps.optimizer import own_state
from sweeps_train.strategies.strategy import Strategy


@dataclass(frozen=True)
class _Taken:
    """Small parts of a snapshot, which are copies or immutable values because the training continues."""

    progress: Progress
    metrics: dict[str, float] | None
    scaler: dict[str, Any]
    """State of the gradient scaler."""
    small: WorkerState


class Snapshot:
    """One worker's part of the snapshot."""

    def __init__(
        self,
        config: TrainingConfig,
        strategy: Strategy,
        optimizer: torch.optim.Optimizer,
        connection: HolderConnection | None,
    ):
        """Agree on the holder's folder, and connect the workers; all workers must call it at the same time. Only rank 0
        has a connection to the holder, if there is one."""
        self._config, self._strategy, self._optimizer = config, strategy, optimizer
        self._workers = strategy.workers
        self.problem: str | None = None
        """Reason why no snapshot can be taken, if the user should know it."""
        self._links = []
        told = None if connection is None else (connection.folder, connection.files, connection.identity)
        found = self._workers.broadcast(told)
        if found is not None:
            self._folder, self._files, identity = found
            self._is_here = read_identity(self._folder) == identity
            links = link_workers(self._workers, is_here=self._is_here)
            if links is None:
                self.problem = "some workers cannot reach the machine of the first one"
            else:
                self._links = links
        self.exists = found is not None and self.problem is None
        """Whether a snapshot can be taken."""
        self._specs: dict[Any, TensorSpec] | None = None
        """The optimizer's tensors for which the files are laid out; None before that."""
        self._targets: dict[str, torch.Tensor] = {}
        """This worker's parts: places in the files, or memory of its own from which they are sent."""
        self._page_lock = PageLock((), self._workers.device)
        self._received: list[list[torch.Tensor]] = []
        """Places of the parts that each other worker sends; on rank 0."""
        self._overwrites_model = False
        """Whether the parts include the weights, because these can be overwritten in the model's files."""
        self._taken: _Taken

    @property
    def is_outdated(self) -> bool:
        """Whether this worker's optimizer has tensors that differ from the layout of the files."""
        return self._specs is not None and self._specs != self._present_specs()

    def forget_layout(self) -> None:
        """Lay the files out again at the next snapshot. All workers call it if ``is_outdated`` is true on one of
        them."""
        self._specs = None

    def take(self, progress: Progress, metrics: dict[str, float] | None) -> bool:
        """Copy this worker's part, with the metrics that are reported at this step, if any; all workers call it, and
        must then call ``complete``. Return whether there was room for the part in memory."""
        weights = self._strategy.saved_weights()
        state, small = own_tensors(self._strategy, self._optimizer, weights)
        if self._is_here:
            mark_changed(self._folder)
        if self._specs is None:
            if not self._lay_out(state, weights):
                return False
        elif not self._overwrites_model:
            self._write_model()
        tensors = named_apart(state, weights)
        with torch.no_grad():
            pairs = [(target, local_shard(tensors[name])) for name, target in self._targets.items()]
        copy_all(pairs, self._workers.device)
        self._taken = _Taken(
            progress,
            None if metrics is None else dict(metrics),
            dict(self._strategy.precision.scaler.state_dict()),
            replace(small, plain=copy.deepcopy(small.plain)),
        )
        return True

    def complete(self) -> None:
        """Gather all parts while the training continues; all workers call it. When rank 0 returns, the snapshot is
        complete.

        Raises:
            ConnectionError: A worker has ended.
        """
        taken = self._taken
        if self._workers.rank != 0:
            (link,) = self._links
            link.send(taken.small)
            if not self._is_here:
                for part in self._targets.values():
                    link.send_tensor(part)
            return
        write_json(self._files / METRICS_FILE, taken.metrics)
        states = [taken.small]
        for link, places in zip(self._links, self._received, strict=True):
            states.append(link.receive())
            for place in places:
                link.receive_tensor(place)
        write_state(self._files, taken.progress, taken.scaler, states)

    def tell_written(self, error: Exception | None) -> None:
        """Tell the other workers that the snapshot is written and may be overwritten, or why writing failed."""
        for link in self._links:
            with contextlib.suppress(OSError):  # it has ended, which the training notices
                link.send(error)

    def wait_until_written(self) -> None:
        """Wait for the message of ``tell_written``; called by all ranks but 0.

        Raises:
            OSError: The snapshot could not be written, or rank 0 has ended.
        """
        (link,) = self._links
        error = link.receive()
        if error is not None:
            raise error

    def close(self) -> None:
        """Close the connections to other workers, which also wakes workers that wait."""
        for link in self._links:
            link.close()
        self._page_lock.release()

    def _present_specs(self) -> dict[Any, TensorSpec]:
        tensors, _ = own_state(self._optimizer, self._strategy)
        return {name: spec_of(each) for name, each in tensors.items()}

    def _lay_out(self, state: Tensors, weights: Tensors) -> bool:
        """Write the model's files and reserve space for the state, both given in full or as this worker's shards;
        return whether there is room for them."""
        self._page_lock.release()
        share = Share.of(state, weights, self._strategy.place, is_here=self._is_here)
        shares = self._workers.gather(share)
        full = self._strategy.full_weights()
        in_files, problem = None, None
        if self._workers.rank == 0:
            try:
                in_files = self._create_files(shares, weights, full)
            except Exception as error:  # noqa: BLE001 - the checkpoint is then saved without a snapshot
                shutil.rmtree(self._files, ignore_errors=True)
                problem = str(error)
        in_files, self.problem = self._workers.broadcast((in_files, problem))
        if self.problem is not None:
            return False
        self._overwrites_model = in_files is not None
        in_files = in_files or {}
        sources = named_apart(state, weights)
        if self._is_here:
            files = map_files(self._files, in_files)
            self._targets = {name: files[name][place] for name, place in share.places.items() if name in files}
            copied = [
                target
                for name, target in self._targets.items()
                if is_accelerator(local_shard(sources[name]).device)  # not tensors that stay on the CPU
            ]
            self._page_lock = PageLock(copied, self._workers.device)
            self._received = [
                [] if each.is_here else [files[name][place] for name, place in each.places.items() if name in files]
                for each in shares[1:]
            ]
        else:
            pinned = pins_memory(self._workers.device)
            self._targets = buffers(sources, share, in_files, pinned=pinned)
        self._specs = self._present_specs()
        return True

    def _create_files(
        self, shares: Sequence[Share], weights: Tensors, full: Tensors | None
    ) -> dict[str, InFile] | None:
        """Write the files and return the positions of the weights; None if they cannot be overwritten in place."""
        for share in shares:
            if share.problem is not None:
                raise OSError(share.problem)
        task = self._strategy.task
        create_files(
            self._files,
            {name: each for share in shares for name, each in share.specs.items()},
            sum(each.nbytes for each in task.model.parameters() if each.requires_grad),
            lambda folder: task.save(folder, full),
        )
        write_training_config(self._files, self._config)
        return find_weights(self._files, weights if full is None else full, task.frozen)

    def _write_model(self) -> None:
        """Write the model's files again if workers cannot overwrite them in place."""
        weights = self._strategy.full_weights()
        if self._workers.rank == 0:
            self._strategy.task.save(self._files, weights)
