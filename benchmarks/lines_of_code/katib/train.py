import argparse
import os
from pathlib import Path

import mlflow
import torch
import torch.distributed as dist
from digits import build, held_out_loss, loaders, train_epoch
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train_batches, held_out = loaders(rank, dist.get_world_size())
    module, start = build(options.width), 0
    folder = Path(os.environ.get("CHECKPOINTS", "/checkpoints")) / os.environ["HOSTNAME"].rsplit("-", 2)[0]
    file = folder / "state.pt"
    if file.exists():
        state = torch.load(file)
        module.load_state_dict(state["model"])
        start = state["epoch"]
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)
    if rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_experiment("digits_sweep")
        mlflow.start_run(run_name=folder.name)
        mlflow.log_params(vars(options))
    for epoch in range(start, 10):
        train_epoch(model, train_batches, optimizer)
        if rank == 0:
            torch.save({"model": module.state_dict(), "epoch": epoch + 1}, file)
            loss = held_out_loss(module, held_out)
            mlflow.log_metric("loss", loss, epoch)
            print(f"loss={loss}", flush=True)
    if rank == 0:
        mlflow.log_artifact(str(file), "checkpoint")
        mlflow.end_run()
    dist.destroy_process_group()


main()
