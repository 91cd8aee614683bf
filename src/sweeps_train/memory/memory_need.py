"""Memory that a worker will need for a training, computed by one step on fake tensors, which have no values."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from sweeps_train.compat.fake_tensors import PeakMemory, fake_process_group, fake_tensors
from sweeps_train.compat.torch import local_shard
from sweeps_train.config import TextData, Train, TrainingConfig, check_batch_split
from sweeps_train.config.strategy import DDP, Pipeline, num_stages
from sweeps_train.data.sample_order import Batch
from sweeps_train.steps.optimizer import build_optimizer
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.strategies.pipeline_stages import Stage
from sweeps_train.strategies.strategy import Strategy, trained_parameters
from sweeps_train.tasks import build_task
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Peak memory of one worker in bytes, by cause."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Everything else at the moment of peak memory: activations, logits, gathered weights, temporary tensors."""
    logits: int
    """The logits and their gradient, which are part of ``activations``; 0 if the loss processes them in chunks."""
    in_machine: int = 0
    """Bytes that are kept in the machine's memory instead of the GPU's (``cpu_offload``)."""

    @property
    def total(self) -> int:
        """Total bytes on the device."""
        return self.weights + self.gradients + self.optimizer + self.activations


def memory_need(config: TrainingConfig, num_workers: int, micro_batch: int | None, *, use_gpu: bool) -> MemoryNeed:
    """Compute the memory that a worker needs; in a pipeline, that of the worker that needs the most.

    Args:
        config: The training. Its language model is built from its config alone, which must be on this disk or in the
            hub's cache.
        num_workers: Number of workers.
        micro_batch: Samples of a forward pass; None takes those of the config, and one for ``auto``.
        use_gpu: Whether each worker has a GPU, which decides the precision ``auto``.

    Raises:
        Exception: The model cannot be built, or its code reads values, which fake tensors lack.
    """
    stages, replicas = num_stages(config.strategy, num_workers), config.strategy.replicas(num_workers)
    configured, _ = check_batch_split(config.train, replicas, stages)
    rows = micro_batch or (1 if config.train.micro_batch_size == "auto" else configured)
    accumulated = config.train.global_batch_size // replicas // rows
    # A worker of `ddp` runs the passes of a single worker.
    workers = Workers(0, 1 if isinstance(config.strategy, DDP) else num_workers, CPU)
    precision = Precision(_precision(config.train, use_gpu=use_gpu), CPU)
    make = _task_maker(config, autocasts=precision.type is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about steps that are not used for training
        if stages > 1:
            return _pipeline_need(config, make, precision, stages, rows, accumulated)
        with fake_process_group(workers.size):
            strategy = build_strategy(config.strategy, workers, precision)
            with fake_tensors():
                task, batch = make(rows)
                strategy.parallelize(task)
                replays = use_gpu and num_workers == 1 and config.train.cuda_graphs and task.repeats_its_passes
                need = _need(config, strategy, batch, keeps_gradients=replays or accumulated > 1)
    if isinstance(config.strategy, DDP) and num_workers > 1:
        need = _with_buckets(need, config.strategy, accumulated)
    return _offloaded(need) if use_gpu and getattr(config.strategy, "cpu_offload", False) else need


def _with_buckets(need: MemoryNeed, config: DDP, accumulated: int) -> MemoryNeed:
    """Add the buckets in which ``DistributedDataParallel`` sends gradients, which it holds all the time. Gradients have
    memory of their own in steps that average them afterwards, such as the first ones, and after all micro batches but
    the last."""
    apart = config.compression == "none" or accumulated > 1
    return replace(need, gradients=2 * need.gradients) if apart else need


def _offloaded(need: MemoryNeed) -> MemoryNeed:
    kept = need.weights + need.gradients + need.optimizer
    return replace(need, weights=0, gradients=0, optimizer=0, in_machine=kept)


def _precision(train: Train, *, use_gpu: bool) -> Literal["bf16", "fp32"]:
    if train.precision == "auto":
        return "bf16" if use_gpu else "fp32"
    return "fp32" if train.precision == "fp32" else "bf16"  # fp16 is as large, and would need a scaler


def _task_maker(config: TrainingConfig, *, autocasts: bool) -> Callable[[int], tuple[Task, Batch]]:
    """Return a function that makes a task and a batch of a given size; called among fake tensors, so that the model has
    no values.

    A language model's data is not read: its longest samples have ``data.sequence_length`` tokens.
    """
    if isinstance(config.data, TextData):
        from sweeps_train.tasks.blank_causal_lm import BlankCausalLM

        return lambda rows: (task := BlankCausalLM(config, autocasts=autocasts), task.longest_batch(rows))
    built = build_task(config)
    sample = built.train_samples.batch([0])

    def make(rows: int) -> tuple[Task, Batch]:
        task: Any = copy.copy(built)
        task.model = copy.deepcopy(built.model)
        return task, {name: torch.zeros((rows, *each.shape[1:]), dtype=each.dtype) for name, each in sample.items()}

    return make


def _need(config: TrainingConfig, strategy: Strategy, batch: Batch, *, keeps_gradients: bool) -> MemoryNeed:
    """Run one step on one micro batch, and return the memory that it needs. With ``keeps_gradients``, earlier micro
    batches, or CUDA graphs, already hold gradients in memory."""
    logits = _sizes_of_logits(strategy.task)
    trained = list(strategy.parameters.values())
    with PeakMemory() as memory:
        weights = _add_weights(memory, strategy.task.model)
        if keeps_gradients:
            _add_gradients(trained)
        strategy.backward([batch], 1.0)
        return _itemized(config.train, memory, weights, trained, sum(logits))


def _pipeline_need(
    config: TrainingConfig,
    make: Callable[[int], tuple[Task, Batch]],
    precision: Precision,
    stages: int,
    rows: int,
    accumulated: int,
) -> MemoryNeed:
    """Run the first stage, which keeps activations of the most micro batches, and the last one, which has the logits;
    return the larger need."""
    assert isinstance(config.strategy, Pipeline)
    needs: list[MemoryNeed] = []
    shape = torch.Size()
    with fake_tensors():
        for index in (0, stages - 1):
            task, batch = make(rows)
            logits = _sizes_of_logits(task)
            stage = Stage(task.model.train(), index, stages)
            if config.strategy.activation_checkpointing:
                checkpoint_activations(task.model)
            trained = [each for each in trained_parameters(task.model).values() if not each.is_meta]
            alive = accumulated if config.strategy.schedule == "gpipe" else min(accumulated, stages - index)
            with PeakMemory() as memory:
                weights = _add_weights(memory, task.model)
                _add_gradients(trained)
                outputs = [_stage_output(task, stage, batch, precision, shape) for _ in range(alive)]
                while outputs:
                    output = outputs.pop()
                    shape = output.shape
                    torch.autograd.backward(output, torch.zeros_like(output))
                needs.append(_itemized(config.train, memory, weights, trained, sum(logits) if stage.is_last else 0))
    return max(needs, key=lambda need: need.total)


def _stage_output(task: Task, stage: Stage, batch: Batch, precision: Precision, shape: torch.Size) -> torch.Tensor:
    """Return the output of a stage on one micro batch: on the last stage, the loss."""
    received = None if stage.is_first else torch.zeros(shape, dtype=precision.type, requires_grad=True)
    with precision.autocast():
        output = stage.run(lambda model: task.logits(model, batch), received)
        return task.loss(output, batch) if stage.is_last else output


def _sizes_of_logits(task: Any) -> list[int]:
    """Return a list to which a task appends the bytes of its logits whenever it computes all of them at once."""
    compute, sizes = task.logits, []
    if not getattr(task, "keeps_logits", True):
        return []

    def measured(*arguments: Any) -> torch.Tensor:
        logits: torch.Tensor = compute(*arguments)
        sizes.append(logits.nbytes)
        return logits

    task.logits = measured
    return sizes


def _add_weights(memory: PeakMemory, model: nn.Module) -> int:
    """Count a worker's weights and buffers, and return their bytes."""
    for tensor in [*model.parameters(), *model.buffers()]:
        if not tensor.is_meta:
            memory.add(local_shard(tensor))
    return memory.now


def _add_gradients(trained: list[nn.Parameter]) -> None:
    for each in trained:
        each.grad = torch.zeros_like(each)


def _itemized(train: Train, memory: PeakMemory, weights: int, trained: list[nn.Parameter], logits: int) -> MemoryNeed:
    gradients = sum(local_shard(each.grad).nbytes for each in trained if each.grad is not None)
    activations = max(memory.peak - weights - gradients, 0)
    optimizer = build_optimizer(trained, train)
    optimizer.step()
    kept = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    states = sum(local_shard(value).nbytes for value in kept)
    return MemoryNeed(
        weights=weights, gradients=gradients, optimizer=states, activations=activations, logits=2 * logits
    )
