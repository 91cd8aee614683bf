import tempfile
from pathlib import Path

import ray.train
import torch
from digits import build, held_out_loss, loaders, train_epoch
from ray.train.torch import prepare_model


def train(config):
    context = ray.train.get_context()
    train_batches, held_out = loaders(context.get_world_rank(), context.get_world_size())
    module, start = build(config["width"]), 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt")
        module.load_state_dict(state["model"])
        start = state["epoch"]
    model = prepare_model(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(start, 10):
        train_epoch(model, train_batches, optimizer)
        with tempfile.TemporaryDirectory() as folder:
            if context.get_world_rank() == 0:
                torch.save({"model": module.state_dict(), "epoch": epoch + 1}, Path(folder) / "state.pt")
            checkpoint = ray.train.Checkpoint.from_directory(folder) if context.get_world_rank() == 0 else None
            ray.train.report({"loss": held_out_loss(module, held_out)}, checkpoint=checkpoint)
