"""Pipeline parallel: micro batches pass from worker to worker, each of which holds some of the layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from sweeps_train.config.strategy import Pipeline
from sweeps_train.data.sample_order import Batch, Samples, in_batches
from sweeps_train.errors import is_out_of_memory
from sweeps_train.memory.probe_step import restored_state
from sweeps_train.steps.precision import Precision
from sweeps_train.steps.trained_types import hold_in_float32
from sweeps_train.strategies.dtensor import average, saved_buffers
from sweeps_train.strategies.gradient_clipping import clip_sharded
from sweeps_train.strategies.layers import checkpoint_activations
from sweeps_train.strategies.mesh import mesh, replicas
from sweeps_train.strategies.pipeline_stages import Stage
from sweeps_train.strategies.strategy import Capabilities, Key, Strategy, on_device
from sweeps_train.tasks.task import Task
from sweeps_train.workers.distributed import Workers

_SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class PipelineStrategy(Strategy):
    """Pipeline parallelism: the workers of a mesh row hold one model together; those of a column have the same stage
    and average its gradients."""

    def __init__(self, config: Pipeline, workers: Workers, precision: Precision):
        num_replicas = config.replicas(workers.size)
        self._config = config
        self._num_stages = workers.size // num_replicas
        grid = mesh(workers, {"data": num_replicas, "stage": self._num_stages})
        self._index, self._row = grid["stage"].get_local_rank(), grid["stage"].get_group()
        data_parallel = replicas(workers, grid["data"])
        capabilities = Capabilities(
            random_stream=workers.rank,
            is_reporting_rank=self._index == self._num_stages - 1,  # only the last stage has the losses
            activation_checkpointing=config.activation_checkpointing,
        )
        super().__init__(workers, precision, capabilities, data_parallel)

    def parallelize(self, task: Task) -> None:
        self.task = task
        model = task.model.train()
        names: dict[nn.Parameter, str] = {}
        first_names = {
            name: names.setdefault(parameter, name)
            for name, parameter in model.named_parameters(remove_duplicate=False)
        }
        self._stage = Stage(model, self._index, self._num_stages)
        if self.capabilities.activation_checkpointing:
            checkpoint_activations(model)
        # Not before the division into stages: the whole model in float32 may not fit into memory.
        in_float32 = {name for name, first in first_names.items() if first in task.stored_types}
        hold_in_float32(model, in_float32, device=self.workers.device)
        for module in model.modules():
            _move_own_tensors(module, self.workers.device)
        self.model = model
        frozen = set(task.frozen)
        self._not_frozen = {
            first_names[name]: each
            for name, each in model.named_parameters(remove_duplicate=False)
            if not each.is_meta and name not in frozen
        }
        self.parameters = {name: each for name, each in self._not_frozen.items() if each.requires_grad}
        if 0 in self.workers.broadcast(self.workers.gather(len(self.parameters))):
            raise ValueError(
                f"strategy.stages={self._num_stages}: all weights of a stage are frozen, so that it has nothing to "
                "train; use fewer stages, or strategy.kind=fsdp"
            )
        # A weight that both embeds tokens and is the head: the first and the last stage have a copy each.
        self._tied = [self.parameters[name] for name in sorted(self._stage.shared & self.parameters.keys())]
        self._schedules: dict[tuple[int, int, bool], Any] = {}
        self._batch: Batch = {}
        self._trial = ExitStack()
        """Undoes the trial run of a new schedule; see ``_StageOfRows``."""

    def backward(
        self, batches: Sequence[Batch], scale: float | torch.Tensor, *, defer_grad_sync: bool = False
    ) -> torch.Tensor:
        padded = [self.task.pad(on_device(each, self.workers.device)) for each in batches]
        batch = {name: torch.cat([each[name] for each in padded]) for name in padded[0]}
        losses: list[torch.Tensor] = []
        self._run(batch, len(batches), losses=losses, scale=scale)
        for each in self._tied:
            self._add_gradient_of_other_end(each)
        average(self._gradients, self.data_parallel)
        total = torch.zeros((), dtype=torch.float64, device=self.workers.device)
        return total + sum(each.detach().double() for each in losses) / scale

    def _run(self, batch: Batch, count: int, **training: Any) -> torch.Tensor | None:
        """Run the forward passes, and with ``losses`` and ``scale`` the backward passes too. Return the logits of the
        whole batch on the last stage; None on other stages, and in training."""
        self._batch = batch
        num_rows = len(next(iter(batch.values())))
        key = count, num_rows, bool(training)
        if key not in self._schedules:
            self._schedules[key] = self._schedule(count, trains=bool(training))
        # Every worker has the batch; what the schedule cuts into micro batches is its row numbers.
        rows = torch.arange(num_rows, device=self.workers.device)
        arguments: dict[str, Any] = {"rows": rows}
        if training:
            arguments |= {"target": rows, "losses": training["losses"], "loss_kwargs": {"scale": training["scale"]}}
        inputs = (torch.zeros(num_rows, device=self.workers.device),) if self._stage.is_first else ()
        try:
            logits: torch.Tensor | None = self._schedules[key].step(*inputs, return_outputs=not training, **arguments)
        except RuntimeError as error:  # torch's stages wrap errors in one of their own
            if error.__cause__ is not None and is_out_of_memory(error.__cause__):
                raise error.__cause__ from None
            raise
        finally:
            self._trial.close()  # also of a trial that failed, or it would be undone later, in another training
        return logits

    def _schedule(self, count: int, *, trains: bool) -> Any:
        module = _StageOfRows(self._stage, self._forward, self._trial, restored_state(self))
        stage = PipelineStage(module, self._index, self._num_stages, self.workers.device, group=self._row)
        if not trains:
            return ScheduleGPipe(stage, count)
        return _SCHEDULES[self._config.schedule](stage, count, loss_fn=self._loss, scale_grads=False)

    def _forward(self, model: Callable[..., Any], rows: torch.Tensor) -> torch.Tensor:
        with self.precision.autocast():
            return self.task.logits(model, _select(self._batch, rows))

    def _loss(self, logits: torch.Tensor, rows: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        with self.precision.autocast():
            return self.task.loss(logits, _select(self._batch, rows)) * scale

    def _add_gradient_of_other_end(self, parameter: nn.Parameter) -> None:
        assert parameter.grad is not None
        other = self._num_stages - 1 if self._stage.is_first else 0
        received = torch.empty_like(parameter.grad)
        swap = [
            dist.P2POp(dist.isend, parameter.grad, group=self._row, group_peer=other),
            dist.P2POp(dist.irecv, received, group=self._row, group_peer=other),
        ]
        for each in dist.batch_isend_irecv(swap):
            each.wait()
        parameter.grad += received

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        return clip_sharded(self.parameters.values(), self._copies, max_norm, self.workers)

    def _copies(self, parameter: nn.Parameter) -> int:
        return self.data_parallel.size * (2 if any(each is parameter for each in self._tied) else 1)

    @torch.no_grad()
    def evaluate(self, samples: Samples, batch_size: int) -> torch.Tensor:
        self.model.eval()
        self._broadcast_buffers(self.model)
        total = torch.zeros(self.task.num_scores, dtype=torch.float64, device=self.workers.device)
        num_rows = batch_size * self._num_stages  # as many micro batches as stages, so that each has something to do
        for indices in in_batches(self.data_parallel.shard(range(len(samples))), num_rows):
            # Every batch has the same shape; the rows that fill up the last one are not counted.
            filled = [*indices, *[indices[-1]] * (num_rows - len(indices))]
            batch = on_device(self.task.pad(samples.batch(filled)), self.workers.device)
            logits = self._run(batch, self._num_stages)
            if logits is not None:
                counted = {name: each[: len(indices)] for name, each in batch.items()}
                with self.precision.autocast():
                    total += self.task.score(logits[: len(indices)], counted)
        self.model.train()
        return total

    def saved_weights(self) -> dict[str, torch.Tensor]:
        buffers = {name: each for name, each in saved_buffers(self.model).items() if not each.is_meta}
        return {**self._not_frozen, **buffers}

    def full_weights(self) -> dict[str, torch.Tensor]:
        return self.gather_full(self.saved_weights())

    def place(self, tensor: torch.Tensor) -> tuple[slice, ...] | None:
        return () if self.data_parallel.rank == 0 else None

    def gather_full(self, shards: Mapping[Key, torch.Tensor]) -> dict[Key, torch.Tensor]:
        own = {key: each.detach() for key, each in shards.items()} if self.data_parallel.rank == 0 else {}
        contents = self.workers.gather([(key, each.shape, each.dtype) for key, each in own.items()])
        device = self.workers.device
        if self.workers.rank != 0:
            for each in own.values():
                dist.send(each.to(device).contiguous(), dst=0)
            return {}
        gathered = {key: each.cpu() for key, each in own.items()}
        for rank, content in enumerate(contents[1:], start=1):
            for key, shape, dtype in content:
                received = torch.empty(shape, dtype=dtype, device=device)
                dist.recv(received, src=rank)
                gathered[key] = received.cpu()
        return gathered


class _StageOfRows(nn.Module):
    """A stage in the form that torch's schedules call, with the row numbers of a micro batch.

    The first call is a trial run, by which a schedule learns the shapes that stages send. Its input is uninitialised
    memory, so what it changes, such as running means and random states, is undone.
    """

    def __init__(
        self,
        stage: Stage,
        forward: Callable[[Callable[..., Any], torch.Tensor], torch.Tensor],
        trial: ExitStack,
        restored: AbstractContextManager[None],
    ):
        super().__init__()
        self._stage, self._forward, self._trial, self._restored = stage, forward, trial, restored
        self._was_tried = False

    def forward(self, received: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        if self._was_tried:
            self._trial.close()  # not earlier, since the trial's backward pass needs the buffers
        else:
            self._was_tried = True
            self._trial.enter_context(self._restored)
        output = self._stage.run(lambda model: self._forward(model, rows), None if self._stage.is_first else received)
        return output.contiguous()  # only contiguous tensors can be sent


def _move_own_tensors(module: nn.Module, device: torch.device) -> None:
    """Move a module's own tensors to a device, unless they belong to another stage."""
    for parameter in module.parameters(recurse=False):
        if not parameter.is_meta:
            parameter.data = parameter.data.to(device)
    for name, buffer in list(module.named_buffers(recurse=False)):
        if not buffer.is_meta:
            setattr(module, name, buffer.to(device))


def _select(batch: Batch, rows: torch.Tensor) -> Batch:
    return {name: each[rows] for name, each in batch.items()}
