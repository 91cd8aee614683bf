"""The snapshot of a training: the files of a checkpoint in shared memory, which its workers overwrite together.

When the first snapshot is taken, the files are laid out as those of any checkpoint. Afterwards each worker copies its
own tensors, or its shards of them, to their places in the same files, which are mapped into its memory: nothing is
gathered, allocated or formatted.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import torch

from sweeps_train.checkpoint import METRICS_FILE, write_json, write_training_config
from sweeps_train.config import TrainingConfig
from sweeps_train.device import copy_all
from sweeps_train.machine_memory import available_memory, machine_memory
from sweeps_train.progress import Progress
from sweeps_train.snapshots.connection import HolderConnection, read_identity
from sweeps_train.strategies import Strategy
from sweeps_train.strategies.dtensor import local_shard
from sweeps_train.tensor_file import TensorSpec, create, mapped, spec_of
from sweeps_train.training_state import TENSORS_FILE, own_tensors, write_state

LEFT_FREE = 0.1
"""Part of the memory of the machine, or of the container, that a snapshot leaves free."""

Tensors = Mapping[str, torch.Tensor]


class Snapshot:
    """One worker's part of the snapshot."""

    def __init__(
        self,
        config: TrainingConfig,
        strategy: Strategy,
        optimizer: torch.optim.Optimizer,
        connection: HolderConnection | None,
    ):
        """Agree on the holder's folder; all workers do it at the same time.

        Args:
            config: The training.
            strategy: Its model is saved.
            optimizer: Its state is saved.
            connection: Rank 0's connection to the holder; None on other ranks, and if there is no holder.
        """
        self._config, self._strategy, self._optimizer, self._connection = config, strategy, optimizer, connection
        self._workers = strategy.workers
        told = None if connection is None else (connection.folder, connection.files, connection.identity)
        found = self._workers.broadcast(told)
        self.exists = found is not None
        """Whether a snapshot can be taken."""
        if found is not None:
            folder, self._files, identity = found
            self._is_shared = self._agree(is_so=read_identity(folder) == identity)
        self.problem: str | None = None
        """Reason for which there was no room for a snapshot."""
        self._specs: dict[str, TensorSpec] | None = None
        self._state: dict[str, torch.Tensor] = {}
        """Tensors of the state in the files."""
        self._weights: dict[str, torch.Tensor] | None = None
        """Tensors in the model's files by the names of weights; None if the workers cannot overwrite them."""

    def take(self, progress: Progress, metrics: dict[str, float] | None) -> bool:
        """Take the snapshot; all workers call it. When rank 0 returns, it is whole.

        Args:
            progress: Position of the training.
            metrics: Metrics that are reported at this step, if any.

        Returns:
            Whether there was room for it in memory.
        """
        weights = self._strategy.saved_weights()
        tensors, state = own_tensors(self._strategy, self._optimizer, weights)
        if not self._is_shared:
            tensors = self._strategy.gather_full(tensors)
        if self._connection is not None:
            self._connection.change()
        specs = {name: spec_of(each) for name, each in tensors.items() if self._place(each) is not None}
        is_laid_out = self._agree(is_so=specs == self._specs)
        if not is_laid_out and not self._lay_out(specs, weights):
            return False
        pairs = self._pairs(self._state, tensors)
        if is_laid_out and self._weights is not None:
            pairs += self._pairs(self._weights, weights)
        elif is_laid_out:
            self._write_model()
        copy_all(pairs, self._workers.device)
        states = self._workers.gather(state)  # all workers have copied their parts when rank 0 has these
        if self._workers.rank == 0:
            write_json(self._files / METRICS_FILE, metrics)
            write_state(self._files, self._strategy, progress, states)
        return True

    def _place(self, tensor: torch.Tensor) -> tuple[slice, ...] | None:
        return self._strategy.place(tensor) if self._is_shared else ()

    def _pairs(self, targets: Tensors, sources: Tensors) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Places in the files, and what this worker copies there."""
        places = {name: self._place(each) for name, each in sources.items() if name in targets}
        return [
            (targets[name][place], local_shard(sources[name]).detach())
            for name, place in places.items()
            if place is not None
        ]

    def _agree(self, *, is_so: bool) -> bool:
        """Whether something holds on all workers."""
        return self._workers.sum([float(not is_so)]) == [0.0]

    def _lay_out(self, specs: dict[str, TensorSpec], weights: Tensors) -> bool:
        """Write the model's files, and make room for the state; returns whether there is room for both.

        Args:
            specs: Tensors of the state of which this worker has a part.
            weights: The model's weights, or this worker's shards of them.
        """
        everywhere = {name: each for own in self._workers.gather(specs) for name, each in own.items()}
        full = self._strategy.full_weights()
        problem = None
        if self._workers.rank == 0:
            try:
                self._write_files(everywhere, full)
            except Exception as error:  # noqa: BLE001 - the checkpoint is then saved without a snapshot
                shutil.rmtree(self._files, ignore_errors=True)
                problem = str(error)
        self.problem = self._workers.broadcast(problem)
        if self.problem is not None:
            return False
        self._specs = specs
        if self._is_shared or self._workers.rank == 0:
            self._state = mapped(self._files / TENSORS_FILE, shared=True)
        self._weights = self._places_of(weights) if self._is_shared else None
        return True

    def _write_files(self, specs: dict[str, TensorSpec], weights: Tensors | None) -> None:
        model = self._strategy.task.model
        size = sum(each.size for each in specs.values())
        size += sum(each.numel() * each.element_size() for each in model.parameters() if each.requires_grad)
        available = available_memory()
        if size > available - LEFT_FREE * machine_memory():
            raise OSError(f"a snapshot takes {size / 2**30:.1f} GiB of {available / 2**30:.1f} GiB that are free")
        shutil.rmtree(self._files, ignore_errors=True)
        self._files.mkdir()
        create(self._files / TENSORS_FILE, specs)
        write_training_config(self._files, self._config)
        self._strategy.task.save(self._files, weights)

    def _write_model(self) -> None:
        """Write the model's files again, where workers cannot overwrite them in place."""
        weights = self._strategy.full_weights()
        if self._workers.rank == 0:
            self._strategy.task.save(self._files, weights)

    def _places_of(self, weights: Tensors) -> dict[str, torch.Tensor] | None:
        """The tensors of the model's files by the names of weights, if all workers find theirs there.

        Libraries may write weights under other names, or transformed. So what has just been written is compared.
        """
        files = {path for path in self._files.rglob("*.safetensors") if path.name != TENSORS_FILE}
        written: dict[str, torch.Tensor] = {}
        for path in sorted(files):
            written |= mapped(path, shared=True)
        names = {_name_in_file(name): name for name in weights} | {name: name for name in weights}
        found = {names[each]: tensor for each, tensor in written.items() if each in names}
        frozen = set(self._strategy.task.frozen) & written.keys()
        own = {each for each in written if each in names} | frozen
        known = {each for some in self._workers.gather(own) for each in some}
        is_complete = self._workers.rank != 0 or known == written.keys()
        is_same = all(_fits(target, source) for target, source in self._pairs(found, weights))
        return found if self._agree(is_so=is_complete and is_same) else None


def _name_in_file(name: str) -> str:
    """Name of a weight in a file of peft, which leaves out the name of its only adapter."""
    return name.replace(".default.", ".")


def _fits(target: torch.Tensor, source: torch.Tensor) -> bool:
    return target.shape == source.shape and torch.equal(target, source.to("cpu", target.dtype))
