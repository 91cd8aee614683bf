"""Model, data and one epoch of training, which all programs of the comparison share; not counted."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def loaders(rank: int, num_workers: int) -> tuple[DataLoader, DataLoader]:
    """Training batches of one of several workers, and the held-out batches."""
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images / 16, dtype=torch.float32)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs[order], torch.tensor(labels)[order])
    train, held_out = torch.utils.data.Subset(data, range(1400)), torch.utils.data.Subset(data, range(1400, 1797))
    sampler = DistributedSampler(train, num_workers, rank, seed=0)
    return DataLoader(train, batch_size=32, sampler=sampler), DataLoader(held_out, batch_size=397)


def build(width: int) -> nn.Module:
    """A perceptron with one hidden layer."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def train_epoch(model: nn.Module, batches: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    """Make one pass over the training batches."""
    for inputs, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


@torch.no_grad()
def held_out_loss(model: nn.Module, batches: DataLoader) -> float:
    """Mean loss over the held-out samples."""
    ((inputs, labels),) = batches
    return float(nn.functional.cross_entropy(model(inputs), labels))
