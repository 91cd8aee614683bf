import gc
from pathlib import Path

import mlflow
import optuna
import torch
import torch.distributed as dist
from digits import build, held_out_loss, loaders, train_epoch
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

TRIALS, EPOCHS, WORKERS = 8, 10, 2


def worker(rank, lr, width, folder, reports, decisions):
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORKERS)
    train_batches, held_out = loaders(rank, WORKERS)
    module = build(width)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(EPOCHS):
        train_epoch(model, train_batches, optimizer)
        stop = torch.zeros(1)
        if rank == 0:
            torch.save(module.state_dict(), folder / f"epoch-{epoch}.pt")
            reports.put((epoch, held_out_loss(module, held_out)))
            stop.fill_(decisions.get())
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    del model, optimizer
    gc.collect()  # a wrapped model in a reference cycle would keep threads of the process group, and abort at exit
    dist.destroy_process_group()


def objective(trial):
    lr = trial.suggest_float("lr", 1e-3, 1.0, log=True)
    width = trial.suggest_int("width", 8, 128, log=True)
    folder = Path.cwd() / "checkpoints" / str(trial.number)
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    reports, decisions = context.Queue(), context.Queue()
    with mlflow.start_run(nested=True, run_name=f"trial-{trial.number}"):
        mlflow.log_params(trial.params)
        arguments = (lr, width, folder, reports, decisions)
        workers = multiprocessing.start_processes(worker, arguments, WORKERS, join=False, start_method="spawn")
        best, pruned = (float("inf"), 0), False
        for _ in range(EPOCHS):
            step, loss = reports.get(timeout=300)
            mlflow.log_metric("loss", loss, step)
            best = min(best, (loss, step))
            trial.report(loss, step)
            pruned = trial.should_prune()
            decisions.put(float(pruned))
            if pruned:
                break
        while not workers.join():
            pass
        mlflow.log_artifact(str(folder / f"epoch-{best[1]}.pt"), "checkpoint")
        mlflow.set_tag("state", "pruned" if pruned else "finished")
    if pruned:
        raise optuna.TrialPruned
    return best[0]


def main():
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("digits_sweep")
    study = optuna.create_study(
        study_name="digits_sweep",
        storage="sqlite:///study.db",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    )
    ended = [trial for trial in study.trials if trial.state.is_finished()]
    with mlflow.start_run(run_name="digits_sweep"):
        study.optimize(objective, n_trials=TRIALS - len(ended), catch=(RuntimeError,))
    print(study.best_params, study.best_value)


if __name__ == "__main__":
    main()
