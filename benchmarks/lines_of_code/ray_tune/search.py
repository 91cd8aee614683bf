import sys
import tempfile
from pathlib import Path

import mlflow
import ray.train
import torch
from digits import build, held_out_loss, loaders, train_epoch
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

FOLDER = str(Path.cwd() / "results")


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


def trial(config):
    trainer = TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=f"trial-{tune.get_context().get_trial_id()}",
            storage_path=FOLDER,
            callbacks=[TuneReportCallback()],
        ),
    )
    trainer.fit()


def main():
    ray.init(num_cpus=8)
    trainable = tune.with_resources(trial, {"cpu": 1})
    experiment = f"{FOLDER}/digits_sweep"
    if "--resume" in sys.argv and tune.Tuner.can_restore(experiment):
        tuner = tune.Tuner.restore(experiment, trainable, resume_unfinished=True, resume_errored=True)
    else:
        tracking = MLflowLoggerCallback(
            tracking_uri=f"sqlite:///{Path.cwd()}/mlflow.db", experiment_name="digits_sweep"
        )
        tuner = tune.Tuner(
            trainable,
            param_space={"lr": tune.loguniform(1e-3, 1.0), "width": tune.lograndint(8, 129)},
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=8,
                max_concurrent_trials=1,
                search_alg=OptunaSearch(),
                scheduler=ASHAScheduler(max_t=10, grace_period=1, reduction_factor=3),
            ),
            run_config=tune.RunConfig(
                name="digits_sweep", storage_path=FOLDER, callbacks=[tracking], failure_config=tune.FailureConfig(3)
            ),
        )
    results = tuner.fit()
    best = results.get_best_result()
    print(best.config, best.metrics["loss"])
    # The checkpoints lie in the folders of the trainers, which Tune does not know.
    with mlflow.start_run(run_name="best"):
        mlflow.log_params(best.config)


main()
