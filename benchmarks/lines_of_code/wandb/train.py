import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import wandb
from digits import build, held_out_loss, loaders, train_epoch
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=float, default=32)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    run = wandb.init(config=vars(options), resume="allow") if rank == 0 else None
    train_batches, held_out = loaders(rank, dist.get_world_size())
    module, start = build(int(options.width)), 0
    file = Path("checkpoints") / (run.id if run else "other") / "state.pt"
    if run and run.resumed and file.exists():
        state = torch.load(file)
        module.load_state_dict(state["model"])
        start = state["epoch"]
    box = [start]
    dist.broadcast_object_list(box, src=0)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    for epoch in range(box[0], 10):
        train_epoch(model, train_batches, optimizer)
        if run:
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"model": module.state_dict(), "epoch": epoch + 1}, file)
            artifact = wandb.Artifact(f"model-{run.id}", type="model")
            artifact.add_file(str(file))
            run.log_artifact(artifact)
            run.log({"loss": held_out_loss(module, held_out), "epoch": epoch})
    if run:
        run.finish()
    dist.destroy_process_group()


main()
