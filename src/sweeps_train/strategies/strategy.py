"""What a strategy is to the training loop; by itself, the one of a single process."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from sweeps_train.data.sampler import Batch, Samples, in_batches
from sweeps_train.distributed import Workers
from sweeps_train.precision import Precision
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.tasks.task import Task

Key = TypeVar("Key", bound=Hashable)


class Strategy:
    """A training in one process; those of several workers override what is different with them.

    The loop's order of calls: ``spread``, then ``backward``, ``clip`` and the optimizer's step again and again, with
    ``scores`` and ``whole`` between. All workers make the same calls.
    """

    def __init__(self, workers: Workers, precision: Precision):
        self.workers = workers
        self.precision = precision
        self.data = workers
        """This worker among those that have samples of their own."""
        self.stream = workers.rank
        """Of random numbers: the same for those who see the same, since dropout must differ where tokens do."""
        self.speaks = True
        """Whether what this worker counts of its samples is to be counted: one of all who have the same."""
        self.recomputes = False
        """Activations are computed again in the backward pass."""
        self.counted_by = 1
        """How many workers count the same arithmetic: of a layer that is cut, torch counts the whole on each."""
        self.task: Task
        self.model: nn.Module
        """What the forward pass of training goes through."""
        self.may_repeat = workers.size == 1
        """Whether a worker whose device has run out of memory can go through its micro batches again, by itself: it has
        met nobody since the step began."""
        self.careful = False
        """To meet nobody before all micro batches have gone through: they may be larger than those before."""
        self.parameters: dict[str, nn.Parameter] = {}
        """What this worker has to train, by the names of the bare model."""

    def spread(self, task: Task) -> None:
        """Takes the task's model, which every worker has built alike, to its device, or this worker's part of it."""
        self.task = task
        if self.recomputes:
            checkpoint_activations(task.model)
        self.model = self._wrap(task.model.to(self.workers.device).train())
        self.parameters = trained(task.model)

    def _wrap(self, model: nn.Module) -> nn.Module:
        return model

    def backward(self, batches: Iterable[Batch], count: int, scale: float) -> torch.Tensor:
        """Adds the gradients of the losses of this worker's micro batches, averaged over all who have samples of their
        own.

        Args:
            batches: On this worker's device.
            count: How many they are.
            scale: The losses' factor.

        Returns:
            This worker's part of the summed, unscaled loss; float64, on the device, which is not waited for.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.workers.device)
        for place, batch in enumerate(batches, start=1):
            is_last = place == count
            with self._accumulating(is_last=is_last):
                with self.precision.autocast():
                    loss = self.task.loss(*self._logits(self.model, batch))
                if is_last:
                    self._before_last_backward()
                # As the gradient of scale * loss, without a product to go through.
                torch.autograd.backward(loss, self.precision.scaler.scale(loss.new_full((), scale)))
            total += loss.detach()
        self._after_last_backward()
        return total

    def _logits(self, model: Callable[..., Any], batch: Batch) -> tuple[torch.Tensor, Batch]:
        """What the model makes of a batch, and the part of the batch that it is of."""
        return self.task.logits(model, batch), batch

    def _before_last_backward(self) -> None:
        """From here on workers may meet."""

    def _after_last_backward(self) -> None:
        """All gradients of this worker are there."""

    def forget(self) -> None:
        """Drops the gradients of a step that is made again."""
        self.zero_grad()

    def zero_grad(self) -> None:
        """As the optimizer's does, without what that does for profilers."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def _accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Workers exchange gradients once a step, in its last backward pass."""
        return nullcontext()

    def clip(self, max_norm: float) -> None:
        """Scales all gradients down to a norm together of ``max_norm``."""
        nn.utils.clip_grad_norm_(self.parameters.values(), max_norm)

    @torch.no_grad()
    def scores(self, samples: Samples, batch_size: int) -> torch.Tensor:
        """The task's scores of this worker's share of held-out samples, each of which is counted once.

        Args:
            samples: All of them.
            batch_size: Of one forward pass.

        Returns:
            Shape (``num_scores``,), float64.
        """
        # The bare model: a wrapper's forward pass may communicate more than is needed.
        model, device = self.task.model.eval(), self.workers.device
        self._share_buffers(model)
        total = torch.zeros(self.task.num_scores, dtype=torch.float64, device=device)
        batches = list(in_batches(self.data.share(range(len(samples))), batch_size))
        # A sharded model's forward pass is a meeting of workers: all must make as many, and some may have a batch less.
        rounds = math.ceil(math.ceil(len(samples) / self.data.size) / batch_size)
        for place in range(rounds):
            is_own = place < len(batches)
            batch = on_device(samples.batch(batches[place] if is_own else [0]), device)
            with self.precision.autocast():
                scores = self.task.score(*self._logits(model, batch))
            if is_own and self.speaks:
                total += scores
        model.train()
        return total

    def _share_buffers(self, model: nn.Module) -> None:
        """Gives all who have samples of their own the first one's buffers (running means and the like)."""
        if self.data.size > 1:
            for buffer in model.buffers():
                if not buffer.is_meta:
                    dist.broadcast(buffer, group=self.data.group, group_src=0)

    def weights(self) -> dict[str, torch.Tensor] | None:
        """Trained parameters and saved buffers, whole, on rank 0; None if every worker's model has all that it needs to
        be saved. Every worker must call it."""
        return None

    def whole(self, parts: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        """Whole tensors of parts that workers hold, on the CPU of rank 0; elsewhere nothing.

        Args:
            parts: Parameters, buffers, or what an optimizer has for them, under keys that are the same on all workers.
        """
        return {name: part.cpu() for name, part in parts.items()} if self.workers.rank == 0 else {}

    def part(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """This worker's part of a tensor that goes with a parameter and is shaped as it is: ``whole``'s reverse."""
        return whole.to(self.parameters[name].device)


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def on_device(batch: Batch, device: torch.device) -> Batch:
    return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
