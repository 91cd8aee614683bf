"""The stock arm: Ray Train as in its documentation, with a checkpoint at each epoch and any number of retries.

Two trainings at a time, one after another in each place, as a search without early stopping would run them.

    python -m survived.stock TRIALS EPOCHS EPOCH_STEPS STEP_S TRACES FOLDER
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from survived.workload import BATCH, PLACES, WORKERS_PER_TRIAL, Slow, samples


def train_function(arguments: dict[str, Any]) -> None:
    """Train on every worker."""
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(Slow(arguments["step_s"], arguments["traces"]))
    optimizer = torch.optim.AdamW(model.parameters())
    data, _ = samples(BATCH * arguments["epoch_steps"])
    own = BATCH // WORKERS_PER_TRIAL
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(data, own, shuffle=True))
    first = 0
    if (kept := ray.train.get_checkpoint()) is not None:
        with kept.as_directory() as folder:
            state = torch.load(f"{folder}/state.pt")
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    for epoch in range(first, arguments["epochs"]):
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, f"{folder}/state.pt")
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)


def run_place(place: int, trials: int, arguments: dict[str, Any], folder: str) -> None:
    """Train the trials of one place, one after another."""
    for trial in range(place, trials, PLACES):
        TorchTrainer(
            train_function,
            train_loop_config=arguments,
            scaling_config=ScalingConfig(num_workers=WORKERS_PER_TRIAL),
            run_config=RunConfig(
                name=f"trial-{trial}", storage_path=folder, failure_config=FailureConfig(max_failures=-1)
            ),
        ).fit()


def main() -> None:
    trials, epochs, epoch_steps = map(int, sys.argv[1:4])
    step_s, traces, folder = sys.argv[4:]
    ray.init(address="local", num_cpus=PLACES * WORKERS_PER_TRIAL, runtime_env={"working_dir": str(Path.cwd())})
    arguments = {"epochs": epochs, "epoch_steps": epoch_steps, "step_s": float(step_s), "traces": traces}
    places = [threading.Thread(target=run_place, args=(each, trials, arguments, folder)) for each in range(PLACES)]
    for place in places:
        place.start()
    for place in places:
        place.join()


if __name__ == "__main__":
    main()
