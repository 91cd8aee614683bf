"""The global batches of a training, one per step, as this worker reads them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from sweeps_train.config import TextData, TrainingConfig
from sweeps_train.data.images import IGNORED_LABEL, ImageSamples
from sweeps_train.data.loader import load_micro_batches
from sweeps_train.data.read_ahead import processors_of_a_worker, read_ahead
from sweeps_train.data.sample_order import Batch, SampleOrder, Samples, longest_first
from sweeps_train.devices.device_operations import sum_type
from sweeps_train.workers.distributed import Workers


class GlobalBatch(NamedTuple):
    """The data of one step."""

    micro_batches: list[Batch]
    """This worker's micro batches, in CPU memory."""
    num_samples: int
    """Number of samples of all workers."""
    size: int
    """Tokens or samples that pass through the models of all workers."""
    units: int | torch.Tensor
    """Number of terms of the loss over all workers, 1 if there are none; a scalar on the device if it is known only
    from the batches, so that no step waits for it."""
    waited_s: float
    """Seconds that this worker waited for its micro batches."""


class GlobalBatches:
    """Reads this worker's share of each global batch, in an order that does not depend on the number of workers."""

    def __init__(self, samples: Samples, config: TrainingConfig, workers: Workers, data_parallel: Workers):
        """Every worker makes this object, with the same samples. ``data_parallel`` are the workers that read different
        ones of them."""
        self.order = SampleOrder(len(samples), config.seed)
        self._samples, self._config, self._workers, self._data_parallel = samples, config, workers, data_parallel
        self._only_batches_show_ignored = isinstance(samples, ImageSamples) and not samples.knows_labels
        loader = config.data.loader
        fewest = -workers.max([-float(processors_of_a_worker())])[0] if loader.num_workers == "auto" else 0
        self._read_ahead = read_ahead(loader, may_draw=config.data.kind == "custom", most=int(fewest))
        self._micro_batches: Iterator[list[Batch]] = iter(())
        self._size = 0

    def begin(self, position: int, num_steps: int, size: int, micro_batch_size: int) -> None:
        """Start reading at a position in the order of the samples, for ``num_steps`` further steps with global batches
        of ``size`` samples."""
        self.close()  # processes that read ahead have ended when others are started
        self._size = size
        self._micro_batches = load_micro_batches(
            self._samples,
            self._share,
            range(position, position + num_steps * size, size),
            micro_batch_size,
            self._read_ahead.setting,
            self._config.data.loader.pin_memory,
            self._workers.device,
            self._config.seed,
        )

    def next(self, position: int) -> GlobalBatch:
        """Return the data of the step at a position, which must follow the previous one. Every worker must call it."""
        indices = self.order.take(position, self._size)
        size, units = self._samples.size(indices), self._samples.units(indices)
        began = time.perf_counter()
        micro_batches = next(self._micro_batches)
        waited_s = time.perf_counter() - began
        counted: int | torch.Tensor = max(1, units)
        if self._only_batches_show_ignored:
            counted = (units - self._num_ignored(micro_batches)).clamp(min=1)
        return GlobalBatch(micro_batches, len(indices), size, counted, waited_s)

    def _num_ignored(self, micro_batches: Sequence[Batch]) -> torch.Tensor:
        """Return the number of ignored labels in the batches of all replicas, a scalar; all workers of a replica have
        the same batches."""
        own = float(sum(int((batch["labels"] == IGNORED_LABEL).sum()) for batch in micro_batches))
        device = self._workers.device
        of_all = self._workers.sum_tensor(torch.full((), own, dtype=sum_type(device), device=device))
        return of_all * (self._data_parallel.size / self._workers.size)

    def tune(self, seconds: float, wait_share: float) -> str | None:
        """Adapt the number of reading processes to the duration of some steps, and to the share of it in which workers
        waited for their batches; both are equal on all workers. Return a description of the change, after which
        ``begin`` must be called; None if nothing changes."""
        return self._read_ahead.observe(seconds, wait_share)

    def close(self) -> None:
        """End the processes that read ahead."""
        self._micro_batches = iter(())

    def _share(self, indices: Sequence[int]) -> Sequence[int]:
        """Return this worker's samples of a global batch, in the order of its micro batches."""
        data = self._config.data
        if isinstance(data, TextData) and data.group_by_length and not data.packing:
            indices = longest_first(self._samples, indices)
        return self._data_parallel.shard(indices)
