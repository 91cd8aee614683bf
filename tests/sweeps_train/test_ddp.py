"""Data parallel training of models with unused parameters, or parameters of several dtypes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset, random_split
from training_runs import IMAGES, configured, on_two_workers, run

from sweeps_train.config import TrainingConfig

STEPS = 5


class LeavesOut(nn.Module):
    """Model with a layer that no loss uses, and one that only marked images use, so not on all workers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 16), nn.Linear(16, 10)
        self.sometimes, self.never = nn.Linear(16, 10), nn.Linear(16, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(images.flatten(1)))
        made: torch.Tensor = self.second(hidden)
        marked = images.flatten(1)[:, 0] > 100
        return made + self.sometimes(hidden) * marked.unsqueeze(1) if marked.any() else made


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
    train = {
        "max_steps": STEPS,
        "global_batch_size": 24,
        "optimizer": "sgd",
        "momentum": 0.0,
        "lr": 0.1,
        "eval_every": 1,
    }
    return configured(base, train=train, strategy=strategy)


def losses(model: str, **strategy: Any) -> list[float]:
    return [metrics["eval/loss"] for _, metrics, *_ in run(config(model, **strategy)).reports]


def leaves_out() -> list[float]:
    return losses("LeavesOut")


def two_types() -> list[float]:
    return losses("TwoTypes")


def compressed() -> str:
    with pytest.raises(ValueError, match=r"strategy\.compression=bf16") as raised:
        losses("LeavesOut", compression="bf16")
    return str(raised.value)


def test_parameters_that_some_losses_leave_out_are_trained_as_by_one_process(tmp_path: Path) -> None:
    alone = leaves_out()
    assert len(alone) == STEPS
    assert on_two_workers(leaves_out, tmp_path)[0] == pytest.approx(alone, rel=1e-5)


def test_parameters_of_several_types_are_averaged_in_the_same_order_on_all_workers(tmp_path: Path) -> None:
    alone = two_types()
    assert on_two_workers(two_types, tmp_path)[0] == pytest.approx(alone, rel=2e-2)


def test_compressed_gradients_want_a_loss_that_uses_all_that_is_trained(tmp_path: Path) -> None:
    for text in on_two_workers(compressed, tmp_path):
        assert "never.weight, never.bias" in text
        assert "requires_grad=False" in text


def test_a_training_is_the_same_in_a_process_that_has_the_data_already() -> None:
    from sweeps_train import worker_cache

    worker_cache._cache.clear()
    cold = losses("LeavesOut")
    assert losses("LeavesOut") == cold


def test_samples_held_out_at_random_do_not_depend_on_the_trials_seed() -> None:
    from sweeps_train import worker_cache
    from sweeps_train.tasks import build_task

    held_out = []
    for seed in (1, 2):
        worker_cache._cache.clear()
        torch.manual_seed(seed)
        task = build_task(configured({**IMAGES, "data": {"kind": "custom", "_target_": "test_ddp.samples"}}))
        held_out.append(task.eval_samples.batch(range(16))["inputs"])
    assert torch.equal(*held_out)
