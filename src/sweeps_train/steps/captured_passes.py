"""Forward and backward passes as CUDA graphs: one launch instead of thousands, which dominate the time of small
batches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from sweeps_train.compat.torch import zero_all
from sweeps_train.data.sample_order import Batch
from sweeps_train.devices.device_operations import empty_cache

_log = logging.getLogger(__name__)

Pass = Callable[[Batch, torch.Tensor], torch.Tensor]
"""Adds the gradients of a loss, times a factor, to those of the parameters, and returns the loss without a graph. Takes
a micro batch and the factor on the device, and never waits for the device."""

WARM_UP = 4
"""Number of steps with batches of a shape before its graph is recorded: in these, kernels are compiled and FLOPs
counted."""
MOST_SHAPES = 4
"""Maximum number of shapes with graphs, each of which holds the memory of its activations; batches of other shapes are
not replayed."""


class CapturedPasses:
    """CUDA graphs for the passes of one training on one GPU. Replays add to gradients in the graphs' own tensors.

    The method is that of PyTorch's manual (https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).
    """

    def __init__(self, compute: Pass, parameters: Sequence[nn.Parameter], note: Callable[[str], None]):
        """Record a pass that runs the same operations for all values in a batch, and in which only these parameters may
        receive gradients. ``note`` tells the user if passes cannot be recorded."""
        self._compute, self._parameters, self._note = compute, parameters, note
        self._steps: Counter[Any] = Counter()
        """Number of steps so far with batches of each shape."""
        self._graphs: dict[Any, _Graph] = {}
        self._trained: set[nn.Parameter] = set()
        """Parameters that receive gradients in the passes; optimizers skip the others."""
        self._gradients: dict[nn.Parameter, torch.Tensor] = {}
        """Tensors that replays add to."""
        self._is_possible, self._most_shapes = True, MOST_SHAPES

    def begin_step(self, batches: Sequence[Batch]) -> None:
        """Register the micro batches of a step."""
        self._steps.update({_shape(each) for each in batches})

    def __call__(self, batch: Batch, factor: torch.Tensor) -> torch.Tensor:
        """Compute or replay a pass. The micro batch and the factor of its loss are on the device. The returned loss is
        valid until the next pass."""
        shape = _shape(batch)
        if self._is_due(shape):
            self._record(shape, batch, factor)
        graph = self._graphs.get(shape)
        if graph is not None:
            self._prepare_gradients()
            return graph.replay(batch, factor)
        loss = self._compute(batch, factor)
        if self._is_possible and not self._graphs:
            self._trained.update(each for each in self._parameters if each.grad is not None)
        return loss

    def _is_due(self, shape: Any) -> bool:
        is_new = self._is_possible and shape not in self._graphs and len(self._graphs) < self._most_shapes
        return is_new and self._steps[shape] > WARM_UP

    def _record(self, shape: Any, batch: Batch, factor: torch.Tensor) -> None:
        """Record the pass for batches of a shape; this computes nothing and leaves gradients unchanged."""
        try:
            if not self._gradients:
                self._gradients = {each: torch.empty_like(each) for each in self._parameters if each in self._trained}
            self._prepare_gradients()
            self._graphs[shape] = _Graph(self._compute, batch, factor)
        except Exception as error:  # noqa: BLE001 - a model that cannot be recorded trains as without graphs
            self._is_possible = False
            _log.warning("no CUDA graph of the training's passes", exc_info=True)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._note(
                f"steps are not replayed as CUDA graphs, because one cannot be recorded ({reason}); "
                "set train.cuda_graphs=false to skip the attempt"
            )
        if not self._is_possible:  # outside of the except clause: the error's frames hold tensors that are to be freed
            self.free()
            empty_cache(factor.device)

    def free(self) -> bool:
        """Free the memory of all graphs, and return whether there were any. Half as many are recorded again; after a
        call without graphs, by which the batches will be smaller, all."""
        had_graphs = bool(self._graphs)
        self._most_shapes = len(self._graphs) // 2 if had_graphs else MOST_SHAPES
        self._graphs.clear()
        self._gradients.clear()
        return had_graphs

    def _prepare_gradients(self) -> None:
        """Give parameters the gradient tensors that a replay adds to, with their current values."""
        unset = []
        for parameter, own in self._gradients.items():
            if parameter.grad is None:
                unset.append(own)
            elif parameter.grad is not own:
                own.copy_(parameter.grad)
            parameter.grad = own
        if unset:
            zero_all(unset)


class _Graph:
    """A recorded pass, with the tensors that it reads."""

    def __init__(self, compute: Pass, batch: Batch, factor: torch.Tensor):
        self._batch = {name: each.clone() for name, each in batch.items()}
        self._factor = factor.clone()
        self._graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[factor.device.index]
        state = generator.clone_state()
        try:
            # Not "global", which forbids other threads to lock memory, as a DataLoader's does for the next batches.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._loss = compute(self._batch, self._factor)
        except Exception:
            generator.graphsafe_set_state(state)  # the other method would wait for the end of the recording
            raise

    def replay(self, batch: Batch, factor: torch.Tensor) -> torch.Tensor:
        for name, each in batch.items():
            self._batch[name].copy_(each)
        self._factor.copy_(factor)
        self._graph.replay()
        return self._loss


def _shape(batch: Batch) -> Any:
    """Return the names, shapes and dtypes of a batch; batches in which these are equal share a graph."""
    return tuple((name, each.shape, each.dtype) for name, each in batch.items())
