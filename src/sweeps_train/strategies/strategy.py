"""The interface of a strategy to the training loop; the base class trains in a single process."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from sweeps_train.data.sample_order import Batch, Samples, in_batches
from sweeps_train.devices.device_operations import empty_cache, sum_type
from sweeps_train.errors import is_out_of_memory
from sweeps_train.steps.captured_passes import CapturedPasses
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.random_state import RandomNumbers
from sweeps_train.steps.trained_types import hold_in_float32
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Properties of a strategy on one worker that affect the training loop."""

    random_stream: int
    """Index of this worker's stream of random numbers. Workers that compute the same values share a stream, so that
    they draw the same dropout masks; all others have different streams."""
    is_reporting_rank: bool = True
    """Whether this worker's losses and scores are counted. Of several workers that compute the same scores, only one
    counts."""
    activation_checkpointing: bool = False
    """Whether activations are recomputed in the backward pass."""
    can_retry_oom: bool = False
    """Whether a worker that runs out of memory can repeat its micro batches alone, provided it has not started to
    exchange gradients. False for strategies that communicate in every layer."""
    communicates_in_layers: bool = False
    """Whether workers exchange activations within a layer, through ``DTensor``."""
    flop_counters: int = 1
    """Number of workers that count the same FLOPs: torch counts the FLOPs of a whole layer on each worker that has a
    shard of it."""


class Strategy:
    """Training in a single process. Strategies for several workers override methods.

    The loop calls ``parallelize`` once, then ``backward``, ``clip_grad_norm`` and the optimizer for every step, with
    ``evaluate`` and ``gather_full`` in between. All workers make the same calls.
    """

    def __init__(
        self, workers: Workers, precision: Precision, capabilities: Capabilities, data_parallel: Workers | None = None
    ):
        self.workers = workers
        self.precision = precision
        self.capabilities = capabilities
        self.data_parallel = data_parallel or workers
        """This worker's place among the replicas, which have different samples."""
        self.task: Task
        self.model: nn.Module
        """The module that a forward pass of training calls: the task's model, possibly wrapped."""
        self.grad_sync_started = False
        """Whether this worker has started to exchange the current step's gradients, so that others may wait for it."""
        self._defers_grad_sync = False
        """Whether gradients of the current step are exchanged only after all micro batches."""
        self._most_scored: float = math.inf
        """Maximum samples in a forward pass of an evaluation; reduced after running out of memory."""
        self.parameters: dict[str, nn.Parameter] = {}
        """Parameters that this worker trains, by their names in the unwrapped model."""
        self.random_numbers = RandomNumbers(workers.device)
        """Random numbers of the training on this worker."""
        self._captured: CapturedPasses | None = None

    def parallelize(self, task: Task) -> None:
        """Move the task's model, which every worker has built identically, or this worker's shard of it, to its
        device."""
        self.task = task
        if self.capabilities.activation_checkpointing:
            checkpoint_activations(task.model)
        hold_in_float32(task.model, task.stored_types, device=self.workers.device)
        self.model = self._wrap(_moved(task.model, self.workers.device).train())
        self.parameters = trained_parameters(task.model)

    def _wrap(self, model: nn.Module) -> nn.Module:
        return model

    def capture_passes(self, note: Callable[[str], None]) -> None:
        """Replay passes as CUDA graphs from now on, where possible: on one GPU, with passes that run the same kernels
        for every batch."""
        is_alone = self.workers.size == 1 and not self.capabilities.activation_checkpointing
        if is_alone and self.workers.device.type == "cuda" and self.task.repeats_its_passes:
            self._captured = CapturedPasses(self._pass, list(self.parameters.values()), note)

    def free_graphs(self) -> bool:
        """Free the memory of CUDA graphs, if a device is full; return whether there were any."""
        return self._captured is not None and self._captured.free()

    def close(self) -> None:
        """Free the memory of CUDA graphs; no training is possible afterwards."""
        self._captured = None

    def backward(
        self, batches: Sequence[Batch], scale: float | torch.Tensor, *, defer_grad_sync: bool = False
    ) -> torch.Tensor:
        """Add the gradients of the losses of this worker's micro batches, averaged over all replicas.

        Args:
            batches: Micro batches, which are copied to the device one by one.
            scale: Factor of the losses, a number or a scalar on the device.
            defer_grad_sync: Delay gradient synchronisation until all micro batches have been processed, so that out of
                memory can be retried locally.

        Returns:
            This worker's part of the summed, unscaled loss: a float64 scalar, left on the device so that nothing waits
            for it.
        """
        device = self.workers.device
        self.grad_sync_started, self._defers_grad_sync = False, defer_grad_sync
        total = torch.zeros((), dtype=sum_type(device), device=device)
        factor = torch.zeros_like(total) + scale  # without waiting for a scale on the device
        if self._captured is not None:
            self._captured.begin_step(batches)
        for number, batch in enumerate(batches, start=1):
            is_last = number == len(batches)
            self._before_micro_batch(is_last=is_last)
            on_it = on_device(batch, device)
            if self._captured is not None:
                total += self._captured(on_it, factor)
            else:
                total += self._pass(on_it, factor, self._before_last_backward if is_last else None)
        self._after_last_backward()
        return total

    def _pass(
        self, batch: Batch, factor: torch.Tensor, before_backward: Callable[[], None] | None = None
    ) -> torch.Tensor:
        """Add the gradients of a micro batch's loss times a factor, a scalar on the device; return the loss without the
        factor. ``before_backward`` is called between the forward and the backward pass."""
        with self.precision.autocast():
            loss = self.task.loss(*self._logits(self.model, batch))
        if before_backward is not None:
            before_backward()
        # Not with the factor as the loss's gradient: to compare their shapes torch imports SymPy, for a second.
        scaled: Any = self.precision.scaler.scale(loss * factor.to(loss.dtype))
        scaled.backward()
        return loss.detach()

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        """Return the model's logits, with the part of the batch that they cover."""
        return self.task.logits(model, batch), batch

    def _before_micro_batch(self, *, is_last: bool) -> None:
        """Hook before each micro batch. Workers exchange gradients once a step, in the last backward pass."""

    def _before_last_backward(self) -> None:
        """Hook before the backward pass in which gradients may be exchanged."""

    def _after_last_backward(self) -> None:
        """Hook after all gradients of this worker have been computed."""

    @property
    def _gradients(self) -> list[torch.Tensor]:
        """Gradients of this worker's parameters, or its shards of them."""
        return [each.grad for each in self.parameters.values() if each.grad is not None]

    def zero_grad(self) -> None:
        """Drop all gradients, without the profiler hooks of the optimizer's method."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Scale all gradients down to a common norm of at most ``max_norm``; return their norm before scaling, a
        scalar."""
        return nn.utils.clip_grad_norm_(self.parameters.values(), max_norm)

    @torch.no_grad()
    def evaluate(self, samples: Samples, batch_size: int) -> torch.Tensor:
        """Compute the task's scores over this worker's share of the held-out samples, each of which is counted once.

        Returns:
            Sums, as a float64 tensor of shape (``task.num_scores``,); or of shape (samples, ``task.num_scores``) if the
            task scores each sample, with zeros for those of other workers.
        """
        # The unwrapped model: a wrapper's forward pass may communicate more than is needed.
        model = self.task.model.eval()
        self._broadcast_buffers(model)
        shape = (len(samples), self.task.num_scores) if self.task.scores_each_sample else (self.task.num_scores,)
        total = torch.zeros(shape, dtype=sum_type(self.workers.device), device=self.workers.device)
        batches = list(in_batches(self.data_parallel.shard(range(len(samples))), batch_size))
        # All workers make as many forward passes, since a sharded model communicates in them; some have a batch less.
        rounds = math.ceil(math.ceil(len(samples) / self.data_parallel.size) / batch_size)
        for number in range(rounds):
            is_own = number < len(batches)
            scores = self._score(model, samples, batches[number] if is_own else [0])
            if is_own and self.capabilities.is_reporting_rank:
                if self.task.scores_each_sample:
                    total[torch.tensor(batches[number], device=total.device)] = scores.to(total.dtype)
                else:
                    total += scores
        model.train()
        return total

    def _score(self, model: nn.Module, samples: Samples, indices: Sequence[int]) -> torch.Tensor:
        """Score samples in one forward pass, or in parts if they do not fit into memory."""
        if len(indices) <= self._most_scored:
            try:
                batch = on_device(samples.batch(indices), self.workers.device)
                with self.precision.autocast():
                    return self.task.score(*self._logits(model, batch))
            except RuntimeError as error:
                if len(indices) == 1 or not self.capabilities.can_retry_oom or not is_out_of_memory(error):
                    raise
            # Outside of the except clause: the error's frames hold tensors that are to be freed.
            empty_cache(self.workers.device)
            self._most_scored = math.ceil(len(indices) / 2)
        middle = math.ceil(len(indices) / 2)
        halves = [self._score(model, samples, part) for part in (indices[:middle], indices[middle:])]
        return torch.cat(halves) if self.task.scores_each_sample else halves[0] + halves[1]

    def _broadcast_buffers(self, model: nn.Module) -> None:
        """Copy the first replica's buffers, such as running means, to all replicas."""
        if self.data_parallel.size > 1:
            for buffer in model.buffers():
                if not buffer.is_meta:
                    dist.broadcast(buffer, group=self.data_parallel.group, group_src=0)

    def saved_weights(self) -> dict[str, torch.Tensor]:
        """Return the weights and buffers for the model's files that this worker holds, in full or as shards, by name.
        Frozen weights may be missing."""
        return {
            name: each
            for name, each in self.task.model.state_dict(keep_vars=True).items()
            if isinstance(each, torch.Tensor)
        }

    def place(self, tensor: torch.Tensor) -> tuple[slice, ...] | None:
        """Return the place of this worker's shard in the full tensor; None if another worker saves that part of it."""
        return () if self.workers.rank == 0 else None

    def full_weights(self) -> dict[str, torch.Tensor] | None:
        """Gather trained parameters and saved buffers by name on rank 0; every worker must call it. None if every
        worker's model is complete, so that it can be saved as it is."""
        return None

    def gather_full(self, shards: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        """Gather full tensors from the shards of parameters, buffers or optimizer state that workers hold, under keys
        that are the same on all workers; every worker must call it. Return them on the CPU of rank 0, and an empty dict
        on other ranks."""
        return {name: shard.cpu() for name, shard in shards.items()} if self.workers.rank == 0 else {}

    def shard_like(self, name: str, full: torch.Tensor) -> torch.Tensor:
        """Return this worker's shard of a full tensor with the shape of parameter ``name``; the reverse of
        ``gather_full``."""
        return full.to(self.parameters[name].device)


def _moved(model: nn.Module, device: torch.device) -> nn.Module:
    """Move a model to a device unless it is there already: moving would lose the scales of bitsandbytes' 8-bit
    layers."""
    is_there = all(each.device == device for each in (*model.parameters(), *model.buffers()))
    return model if is_there else model.to(device)


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def on_device(batch: Batch, device: torch.device) -> Batch:
    """Copy a batch to a device, without waiting for pinned memory."""
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
