"""A script for ``torchrun``: data parallel training on scikit-learn's digits.

    torchrun --nproc-per-node 2 -m sweeps_train.examples.torchrun_digits --lr=1e-2

It uses three conventions of Sweeps: JSON lines on stdout are reports, ``SWEEPS_CHECKPOINT`` is a checkpoint to continue
from, and ``SWEEPS_OUTPUT`` is a folder for new ones.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    images = images.float() / 16
    held_out = torch.arange(len(labels)) % 5 == 0
    own = torch.arange(len(labels))[~held_out][rank::size]
    network = nn.Sequential(nn.Linear(64, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=options.lr)
    start = 0
    if "SWEEPS_CHECKPOINT" in os.environ:
        state = torch.load(Path(os.environ["SWEEPS_CHECKPOINT"]) / "state.pt")
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1
    model = DistributedDataParallel(network)
    folder = Path(os.environ.get("SWEEPS_OUTPUT", "outputs"))
    for epoch in range(start, options.epochs):
        for batch in torch.split(own[torch.randperm(len(own))], 32):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if rank == 0:
            with torch.no_grad():
                logits = network(images[held_out])
            checkpoint = folder / str(epoch)
            checkpoint.mkdir(parents=True, exist_ok=True)
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, checkpoint / "state.pt")
            accuracy = (logits.argmax(dim=1) == labels[held_out]).float().mean().item()
            report = {"step": epoch + 1, "accuracy": accuracy, "checkpoint": str(checkpoint)}
            sys.stdout.write(json.dumps(report) + "\n")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
