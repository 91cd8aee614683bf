"""Check for silent data corruption: processors or memory that compute wrong numbers without an error.

From time to time all workers compute the loss and the gradients of the same samples, with the same weights and the same
random numbers. Healthy workers come to the same bits.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from sweeps_train.data.sample_order import Batch
from sweeps_train.errors import SilentCorruption
from sweeps_train.memory.probe_step import restored_state
from sweeps_train.steps.random_state import seed_all
from sweeps_train.strategies.strategy import Strategy, on_device

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their size in bytes."""


class CorruptionCheck:
    """Compares the gradients of workers that each hold the whole model. All workers call the same methods."""

    def __init__(self, strategy: Strategy, every: int | None, seed: int):
        """Check once in ``every`` steps, or never; ``seed`` is for the random numbers in a check."""
        self._strategy, self._every, self._seed = strategy, every, seed
        self._workers = strategy.workers

    def is_due(self, step: int) -> bool:
        """Whether to compare the workers before the step after ``step``."""
        return self._every is not None and self._workers.size > 1 and step > 0 and step % self._every == 0

    def run(self, step: int, read: Callable[[], Batch]) -> None:
        """Compare the numbers that all workers compute after a step from the same samples, which rank 0 reads.

        Raises:
            SilentCorruption: This worker's numbers differ from the majority's, or there is no majority. Other workers
                then lose the connection to it.
        """
        with restored_state(self._strategy):  # so that the check does not change the training
            seed_all(self._seed, step)
            own = self._fingerprint(self._workers.broadcast(read() if self._workers.rank == 0 else {}))
        found = self._workers.gather((own, socket.gethostname()))
        others = self._workers.broadcast(suspects([each for each, _ in found]) if found else [])
        if others:
            hosts = self._workers.broadcast([host for _, host in found])
            if self._workers.rank in others:
                raise SilentCorruption(step, others, hosts)

    def _fingerprint(self, batch: Batch) -> str:
        """Return a fingerprint of the loss and of every bit of the gradients."""
        strategy = self._strategy
        with strategy.precision.autocast():
            on_it = on_device(batch, self._workers.device)
            loss = strategy.task.loss(strategy.task.logits(strategy.task.model, on_it), on_it)
        trained = list(strategy.parameters.values())
        gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(loss, trained, allow_unused=True)
        used = [each for each in gradients if each is not None]
        bits = torch.stack([_sum_of_bits(each) for each in (loss.detach(), *used)])
        return hashlib.sha256(str(bits.tolist()).encode()).hexdigest()


def suspects(fingerprints: Sequence[str]) -> list[int]:
    """Return the ranks whose fingerprint differs from the majority's; all ranks if there is no majority.

    >>> suspects(["a", "a", "b", "a"])
    [2]
    >>> suspects(["a", "b"])
    [0, 1]
    >>> suspects(["a", "a"])
    []
    """
    ((usual, number), *rest) = Counter(fingerprints).most_common()
    if not rest:
        return []
    has_majority = number > len(fingerprints) / 2
    return [rank for rank, each in enumerate(fingerprints) if not has_majority or each != usual]


def _sum_of_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of a tensor's numbers read as integers, which changes with any single bit."""
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    if dense.is_complex():
        dense = torch.view_as_real(dense)
    return dense.contiguous().view(_INTEGERS[dense.element_size()]).sum(dtype=torch.int64)
