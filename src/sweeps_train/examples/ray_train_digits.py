"""A Ray Train function as in Ray's documentation: data parallel training on scikit-learn's digits."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray.train
import ray.train.torch
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(config: dict[str, Any]) -> None:
    """Train on every worker of a group.

    Args:
        config: ``lr``, ``hidden`` (width of the hidden layer), ``batch_size`` (samples of one worker) and ``epochs``.
    """
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float() / 16
    held_out = torch.arange(len(labels)) % 5 == 0
    data = TensorDataset(images[~held_out], labels[~held_out])
    loader = ray.train.torch.prepare_data_loader(DataLoader(data, batch_size=config["batch_size"], shuffle=True))
    network = nn.Sequential(nn.Linear(64, config["hidden"]), nn.ReLU(), nn.Linear(config["hidden"], 10))
    model = ray.train.torch.prepare_model(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    device = ray.train.torch.get_device()

    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", map_location=device)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1

    for epoch in range(start, config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]  # Ray types it too widely
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            logits = network(images[held_out].to(device)).cpu()
        metrics = {
            "loss": nn.functional.cross_entropy(logits, labels[held_out]).item(),
            "accuracy": (logits.argmax(dim=1) == labels[held_out]).float().mean().item(),
        }
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, Path(folder) / "state.pt")
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=saved)
