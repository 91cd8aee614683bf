"""A Ray Train function that reads Ray Data, as in Ray's documentation: scikit-learn's digits as two datasets."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray.data
import ray.train
import ray.train.torch
import torch
from sklearn.datasets import load_digits
from torch import nn


def train_rows(fraction: float = 1.0) -> ray.data.Dataset:
    """Make the dataset to train on.

    Args:
        fraction: Fraction of the rows to use, from the first on.
    """
    return _digits(held_out=False, fraction=fraction).random_shuffle(seed=0)


def held_out_rows() -> ray.data.Dataset:
    """Make the dataset to evaluate on: every fifth row."""
    return _digits(held_out=True)


def _digits(*, held_out: bool, fraction: float = 1.0) -> ray.data.Dataset:
    images, labels = load_digits(return_X_y=True)
    chosen = (np.arange(len(labels)) % 5 == 0) == held_out
    rows = [
        {"image": image, "label": label}
        for image, label in zip(images[chosen].astype(np.float32), labels[chosen], strict=True)
    ]
    data = ray.data.from_items(rows[: round(fraction * len(rows))], override_num_blocks=4)
    return data.map_batches(lambda batch: {**batch, "image": batch["image"] / 16})


def train(config: dict[str, Any]) -> None:
    """Train on every worker of a group, each on its part of the rows.

    Args:
        config: ``lr``, ``hidden`` (width of the hidden layer), ``batch_size`` (rows of one worker) and ``epochs``.
    """
    rows = ray.train.get_dataset_shard("train")
    held_out = ray.train.get_dataset_shard("held_out")
    network = nn.Sequential(nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Linear(config["hidden"], 10))
    model = ray.train.torch.prepare_model(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", map_location=ray.train.torch.get_device())
        network.load_state_dict(state["network"])
        start = state["epoch"] + 1

    for epoch in range(start, config["epochs"]):
        for batch in rows.iter_torch_batches(batch_size=config["batch_size"]):
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        correct = total = 0
        with torch.no_grad():
            for batch in held_out.iter_torch_batches(batch_size=256):
                correct += int((network(batch["image"]).argmax(dim=1) == batch["label"]).sum())
                total += len(batch["label"])
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save({"network": network.state_dict(), "epoch": epoch}, Path(folder) / "state.pt")
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"accuracy": correct / total, "rows": float(total)}, checkpoint=saved)
