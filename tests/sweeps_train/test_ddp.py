"""Data parallel training of models with unused parameters, or parameters of several dtypes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, TensorDataset, random_split
from training_runs import IMAGES, configured, on_two_workers, run

from sweeps_train.config import TrainingConfig
from sweeps_train.data.sample_order import SampleOrder
from sweeps_train.errors import MicroBatchHalved
from sweeps_train.strategies import strategy as strategy_module
from sweeps_train.strategies.all_reduce import average_in_chunks
from sweeps_train.strategies.dtensor import average
from sweeps_train.workers.distributed import Workers

STEPS = 5


class Sometimes(nn.Module):
    """Model with a layer that only marked images use, so not on all workers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.sometimes = nn.Linear(64, 16), nn.Linear(16, 10), nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(images.flatten(1)))
        made: torch.Tensor = self.second(hidden)
        marked = images.flatten(1)[:, 0] > 100
        return made + self.sometimes(hidden) * marked.unsqueeze(1) if marked.any() else made


class LeavesOut(Sometimes):
    """The same with a layer that no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(16, 3)


class TwoTypes(nn.Module):
    """Model with a layer in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 16).to(torch.bfloat16), nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.second(torch.tanh(self.first(images.flatten(1).to(torch.bfloat16)).float()))
        return made


def samples() -> tuple[Dataset[Any], Dataset[Any]]:
    """Data split with the global random state, as most users do."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(64, 1, 8, 8, generator=generator)
    images[0, 0, 0, 0] = 1000
    train, held_out = random_split(TensorDataset(images, torch.arange(64) % 10), [48, 16])
    return train, held_out


def config(model: str, **strategy: Any) -> TrainingConfig:
    own = {"kind": "custom", "_target_": f"test_ddp.{model}"}
    base = {**IMAGES, "model": own, "data": {"kind": "custom", "_target_": "test_ddp.samples"}}
    sgd = {"optimizer": "sgd", "momentum": 0.0, "lr": 0.1}
    train = {"max_steps": STEPS, "global_batch_size": 24, "eval_every": 1, **sgd}
    return configured(base, train=train, strategy=strategy)


def losses(model: str, **strategy: Any) -> list[float]:
    return run(config(model, **strategy)).eval_losses


def compressed() -> str:
    with pytest.raises(ValueError, match=r"strategy\.compression=bf16") as raised:
        losses("LeavesOut", compression="bf16")
    return str(raised.value)


def out_of_memory_while_averaging() -> str:
    """Error of rank 1, whose first concatenation of gradients runs out of memory; of rank 0, which it leaves alone."""
    concatenate = torch.cat

    def fail_once(*arguments: Any, **options: Any) -> torch.Tensor:
        if dist.get_rank() == 1 and sys._getframe(1).f_code.co_name == "_add_up":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return concatenate(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch, "cat", fail_once)
        with pytest.raises((MicroBatchHalved, RuntimeError)) as raised:
            losses("LeavesOut")
    return type(raised.value).__name__


@pytest.mark.timeout(60)
def test_a_worker_out_of_memory_while_gradients_are_averaged_does_not_repeat_the_step_alone(tmp_path: Path) -> None:
    """Other workers wait in the same collective: the group must be started again."""
    assert on_two_workers(out_of_memory_while_averaging, tmp_path)[1] == "MicroBatchHalved"


class Counts(LeavesOut):
    """Model whose buffer all workers have from rank 0."""

    factor: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images) * self.factor


def out_of_memory_at_the_beginning_of_a_step() -> list[float]:
    """Losses of a training whose rank 1 once runs out of memory before its model has begun."""
    copy, failures = strategy_module.on_device, []

    def fail_once(batch: Any, device: torch.device) -> Any:
        if dist.get_rank() == 1 and not failures:
            failures.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB")
        return copy(batch, device)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strategy_module, "on_device", fail_once)
        return losses("Counts")


@pytest.mark.timeout(60)
def test_a_worker_out_of_memory_before_its_model_has_begun_repeats_the_step(tmp_path: Path) -> None:
    """Other workers do not wait for it to take part in a broadcast of buffers that it would leave out."""
    first, _ = on_two_workers(out_of_memory_at_the_beginning_of_a_step, tmp_path)
    assert len(first) == STEPS
    assert first == pytest.approx(losses("Counts"), rel=1e-5)


def averaged_in_chunks() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    gradients = [torch.randn(size, generator=generator) for size in (3, 5, 40, 2, 7)]
    average_in_chunks(gradients, 2, max_bytes=40)
    return gradients


def test_gradients_are_averaged_in_chunks_that_need_little_memory(tmp_path: Path) -> None:
    first, second = on_two_workers(averaged_in_chunks, tmp_path)
    alone = []
    for rank in (0, 1):
        generator = torch.Generator().manual_seed(rank)
        alone.append([torch.randn(size, generator=generator) for size in (3, 5, 40, 2, 7)])
    for got, other, one, two in zip(first, second, *alone, strict=True):
        assert torch.equal(got, other)
        assert torch.equal(got, one / 2 + two / 2)


def averaged_adapters() -> tuple[int, torch.Tensor]:
    """Number of all-reduces for a hundred small gradients, and the mean that they have then."""
    sent = []
    all_reduce = dist.all_reduce
    gradients = [torch.full((4, 2), float(dist.get_rank())) for _ in range(100)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dist, "all_reduce", lambda *args, **options: sent.append(1) or all_reduce(*args, **options))
        average(gradients, Workers.current())
    return len(sent), torch.stack(gradients)


def test_a_hundred_small_gradients_are_one_all_reduce(tmp_path: Path) -> None:
    for sent, averaged in on_two_workers(averaged_adapters, tmp_path):
        assert sent == 1
        assert torch.equal(averaged, torch.full((100, 4, 2), 0.5))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_parameters_that_some_losses_leave_out_are_trained_as_by_one_process(strategy: str, tmp_path: Path) -> None:
    alone = losses("LeavesOut")
    assert len(alone) == STEPS
    together = on_two_workers(partial(losses, "LeavesOut", kind=strategy), tmp_path)[0]
    assert together == pytest.approx(alone, rel=1e-5)


def marked(which: str) -> tuple[Dataset[Any], Dataset[Any]]:
    """Data of which one worker sees no marked image in the third step for the first time; or with so many of them that
    only some micro batches have none."""
    order, steps = SampleOrder(48, seed=0), (0, 24)
    images = torch.randn(48, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    without = order.take(48, 24)[1::2]
    shares = [order.take(position, 24)[rank::2] for position in steps for rank in (0, 1)]
    late = [next(index for index in share if index not in without) for share in shares]
    images[late if which == "late" else range(0, 48, 2), 0, 0, 0] = 1000
    data = TensorDataset(images, torch.arange(48) % 10)
    return data, data


def losses_of_marked(which: str) -> list[float]:
    micro = {"late": None, "in some micro batches": 2}[which]
    data = {"kind": "custom", "_target_": "test_ddp.marked", "arguments": {"which": which}}
    train = {"max_steps": 8, "global_batch_size": 24, "micro_batch_size": micro, "eval_every": 1}
    sgd = {"optimizer": "sgd", "momentum": 0.0, "lr": 0.1}
    base = {**IMAGES, "model": {"kind": "custom", "_target_": "test_ddp.Sometimes"}, "data": data}
    return run(configured(base, train=train | sgd)).eval_losses


@pytest.mark.parametrize("which", ["late", "in some micro batches"])
def test_parameters_that_a_later_loss_leaves_out_are_trained_as_by_one_process(which: str, tmp_path: Path) -> None:
    together = on_two_workers(partial(losses_of_marked, which), tmp_path)[0]
    assert together == pytest.approx(losses_of_marked(which), rel=1e-5)


def test_parameters_of_several_types_are_averaged_in_the_same_order_on_all_workers(tmp_path: Path) -> None:
    alone = losses("TwoTypes")
    assert on_two_workers(partial(losses, "TwoTypes"), tmp_path)[0] == pytest.approx(alone, rel=2e-2)


def test_compressed_gradients_want_a_loss_that_uses_all_that_is_trained(tmp_path: Path) -> None:
    for text in on_two_workers(compressed, tmp_path):
        assert "never.weight, never.bias" in text
        assert "requires_grad=False" in text


def test_a_training_is_the_same_in_a_process_that_has_the_data_already() -> None:
    from sweeps_train.workers import worker_cache

    worker_cache._cache.clear()
    cold = losses("LeavesOut")
    assert losses("LeavesOut") == cold


def test_samples_held_out_at_random_do_not_depend_on_the_trials_seed() -> None:
    from sweeps_train.tasks import build_task
    from sweeps_train.workers import worker_cache

    held_out = []
    for seed in (1, 2):
        worker_cache._cache.clear()
        torch.manual_seed(seed)
        task = build_task(configured({**IMAGES, "data": {"kind": "custom", "_target_": "test_ddp.samples"}}))
        held_out.append(task.eval_samples.batch(range(16))["inputs"])
    assert torch.equal(*held_out)
