"""Arm (a): the same trainings as in Ray's documentation, with Ray's defaults.

A function trainable starts a ``TorchTrainer`` for every trial, ``TuneReportCallback`` passes the metrics on, and
``MLflowLoggerCallback`` records them: https://docs.ray.io/en/latest/train/user-guides/hyperparameter-optimization.html
The training loop is the plain one of Ray's examples, on our models, data and learning rates. A trial ends by itself
where the warm arm's scheduler stopped it: when Ray's own scheduler stops a trial, its workers are only freed if the
State API of Ray's dashboard is installed and answers (ray#58515); otherwise Ray waits forever.

    python -m overhead.stock TRAININGS.json FOLDER RECORD.json
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback

from overhead.workload import METRIC, WORKERS, ArmRecord, TrialTimes, read_trainings
from sweeps_train.config import TRAINING_CONFIG
from sweeps_train.data.sample_order import SampleOrder, in_batches
from sweeps_train.steps.optimizer import build_optimizer, learning_rate
from sweeps_train.steps.random_state import seed_all
from sweeps_train.tasks import build_task

STEP, BEGAN, REPORTED = "step", "began", "reported"


def train_function(arguments: dict[str, Any]) -> None:
    """Train on every worker."""
    began = time.time()
    config = TRAINING_CONFIG.validate_python(arguments["training"])
    rank = ray.train.get_context().get_world_rank()
    seed_all(config.seed)
    task = build_task(config)
    model = ray.train.torch.prepare_model(task.model)
    optimizer = build_optimizer(model.parameters(), config.train)
    order = SampleOrder(len(task.train_samples), config.seed)
    batch_size, total = config.train.global_batch_size, config.train.max_steps
    assert total is not None
    stalls: list[float] = []
    for step in range(arguments["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config.train, step, total)
        mine = order.take(step * batch_size, batch_size)[rank::WORKERS]
        batch = task.train_samples.batch(mine)
        loss = task.loss(task.logits(model, batch), batch) / len(mine)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % config.train.eval_every and step + 1 < arguments["steps"]:
            continue
        metrics = {**evaluate(task, rank), "train/loss": loss.item(), STEP: step + 1}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                torch.save(
                    {"model": task.model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/state.pt"
                )
                checkpoint = Checkpoint.from_directory(folder)
            before = time.perf_counter()
            ray.train.report({**metrics, BEGAN: began, REPORTED: time.time()}, checkpoint=checkpoint)
            stalls.append(time.perf_counter() - before)
    if rank == 0:
        with Path(arguments["stalls"]).open("a", encoding="utf-8") as opened:
            opened.writelines(f"{each}\n" for each in stalls)


@torch.no_grad()
def evaluate(task: Any, rank: int) -> dict[str, float]:
    model, samples = task.model.eval(), task.eval_samples
    scores = torch.zeros(task.num_scores, dtype=torch.float64)
    for indices in in_batches(range(len(samples))[rank::WORKERS], 64):
        batch = samples.batch(indices)
        scores += task.score(task.logits(model, batch), batch)
    model.train()
    dist.all_reduce(scores)
    metrics: dict[str, float] = task.metrics(scores, len(samples))
    return metrics


def train_driver(config: dict[str, Any]) -> None:
    """Start the workers, in a trial's Tune actor."""
    trainer = TorchTrainer(
        train_function,
        train_loop_config=config["arguments"],
        scaling_config=ScalingConfig(num_workers=WORKERS),
        run_config=RunConfig(
            name=f"train-{tune.get_context().get_trial_id()}",
            storage_path=config["storage_path"],
            callbacks=[TuneReportCallback()],  # type: ignore[no-untyped-call,list-item]
        ),
    )
    trainer.fit()


def main() -> None:
    trainings_file, folder, record = sys.argv[1:]
    stalls = Path(folder) / "stalls.txt"
    stalls.touch()
    arguments = [
        {"training": each.config, "steps": each.steps, "stalls": str(stalls)}
        for each in read_trainings(Path(trainings_file))
    ]
    # A new cluster, not one that is running here, with CPUs for the workers and for the trial's function.
    ray.init(address="local", num_cpus=WORKERS + 1)
    tuner = tune.Tuner(
        train_driver,
        param_space={
            "arguments": tune.grid_search(arguments),
            "storage_path": str(Path(folder) / "train"),
        },
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="max",
            max_concurrent_trials=1,
        ),
        run_config=tune.RunConfig(
            name="stock",
            storage_path=str(Path(folder) / "tune"),
            callbacks=[MLflowLoggerCallback(tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name="stock")],
        ),
    )
    results = tuner.fit()
    assert not results.errors, results.errors
    trials = []
    train_s = 0.0
    for index, path in enumerate(Path(folder).glob("tune/stock/*/result.json")):
        reports = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        reports = [each for each in reports if REPORTED in each]
        trials.append(TrialTimes(str(index), [each[REPORTED] for each in reports], reports[-1][STEP]))
        train_s += reports[-1][REPORTED] - reports[-1][BEGAN]
    ArmRecord(
        trials=sorted(trials, key=lambda trial: trial.reports[-1]),
        train_s=train_s,
        stalls=[float(line) for line in stalls.read_text(encoding="utf-8").split()],
    ).write(Path(record))
    ray.shutdown()


if __name__ == "__main__":
    main()
