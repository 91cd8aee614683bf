"""A whole sweep, in a slow test of a language model with LoRA: a trial learns, and Ctrl-C ends the next, and the sweep,
cleanly."""

from __future__ import annotations

import json
import math
import signal
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
from mlflow import artifacts
from processes import outputs
from running import NO_PREFLIGHT, Done, points, start
from waiting import wait_until

from sweeps.tracking.reader import load_sweep
from sweeps_train import load_model

pytestmark = pytest.mark.timeout(600)

COMMON = (
    *("search=random", "search.num_trials=2", "checkpoint.trials=1", "scaling.num_workers=1", "cluster.num_cpus=1"),
    *("train.eval_every=4", "train.log_every=2", "space=none", "train.max_steps=choice(8,1000000)"),
)
ENDLESS = 1_000_000
DIGITS = ("conf=digits", points({"train.max_steps": 8}, {"train.max_steps": ENDLESS}))
LORA = (
    *("conf=llm_lora", "train.lr=0.005", "data.max_eval_documents=8"),
    "model.lora.target_modules=choice(mlp,attention)",
    points(
        {"model.lora.target_modules": "attention", "train.max_steps": 8},
        {"model.lora.target_modules": "mlp", "train.max_steps": ENDLESS},  # and still warming up: the worst
    ),
)


@dataclass(frozen=True)
class Interrupted(Done):
    """An interrupted sweep."""

    took_s: float
    """Seconds from the signal to its end."""
    family: list[psutil.Process]
    """The processes that it had started."""
    forked: list[bool]
    """Whether each of its workers was a fork of its fork server."""
    listening: list[tuple[str, str]]
    """Command of each of them that listened, and the address."""


@pytest.fixture(
    scope="module",
    params=[
        (signal.SIGINT, DIGITS),
        pytest.param((signal.SIGUSR1, DIGITS), marks=pytest.mark.slow),  # as Slurm sends it shortly before a time limit
        pytest.param((signal.SIGINT, LORA), marks=pytest.mark.slow),
    ],
    ids=["digits", "digits-sigusr1", "lora"],
)
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = tmp_path_factory.mktemp("interrupted")
    number, config = request.param
    tokens = (*config, *COMMON, NO_PREFLIGHT, "--name=mine", "--json")
    with start(folder, "run", *tokens) as process:  # whose pipes are closed
        try:
            wait_until(lambda: trains_the_last(f"sqlite:///{folder}/mlflow.db"), 420, every_s=0.5)
            family = psutil.Process(process.pid).children(recursive=True)
            forked = [
                "fork_server" in " ".join(each.parent().cmdline())
                for each in family
                if each.cmdline()[:1] and each.cmdline()[0].startswith("ray::RayTrainWorker")
            ]
            commands = {each.pid: " ".join(each.cmdline()[:1]) for each in (psutil.Process(process.pid), *family)}
            listening = [
                (commands[each.pid], each.laddr.ip)
                for each in psutil.net_connections("tcp")
                if each.pid in commands and each.status == psutil.CONN_LISTEN
            ]
            process.send_signal(number)
            began = time.monotonic()
            out, err = outputs(process, 60)
            took_s = time.monotonic() - began
            return Interrupted(folder, process.returncode, err, json.loads(out), took_s, family, forked, listening)
        finally:
            process.kill()


def trains_the_last(store: str) -> bool:
    """Whether the first has finished and the second has been evaluated twice, by what is recorded; asked without
    loading MLflow while the sweep makes its database."""
    from sweeps.errors import SweepsError

    try:
        trials = {trial.trial: trial for trial in load_sweep(store, "mine").trials}
    except SweepsError:
        return False
    finished = [trial for trial in trials.values() if trial.state == "finished"]
    return len(finished) == 1 and "0001" in trials and trials["0001"].steps >= 8


def test_ctrl_c_or_another_signal_stops_cleanly_and_loses_nothing(interrupted: Interrupted) -> None:
    assert interrupted.status == 130, interrupted.err
    assert interrupted.took_s < 30  # a few seconds, and as many for a busy machine
    assert "Traceback" not in interrupted.err
    assert len(interrupted.family) > 3
    wait_until(lambda: not any(map(is_alive, interrupted.family)), 30)  # Ray ends them as the driver ends, and later
    assert interrupted.document["status"] == "interrupted"
    assert (interrupted.document["counts"]["finished"], interrupted.document["counts"]["stopped"]) == (1, 1)
    trial = interrupted.trials()[1]
    assert trial.info.status == "KILLED"
    steps = [step for step, _ in interrupted.history(trial.info.run_id, "eval/loss")]
    assert steps == [4 * count for count in range(1, len(steps) + 1)]
    assert len(steps) >= 2
    checkpoints = (interrupted.folder / "outputs" / "mine" / "trials" / "0001").glob("step-*")
    assert max(int(each.name.removeprefix("step-")) for each in checkpoints) >= max(steps)


def test_the_workers_of_a_sweep_are_forks_that_have_its_imports(interrupted: Interrupted) -> None:
    assert interrupted.forked
    assert all(interrupted.forked)


def test_ray_on_this_machine_listens_on_loopback_alone(interrupted: Interrupted) -> None:
    assert len(interrupted.listening) >= 5, "the driver, a worker, the raylet and the GCS listen at least"
    elsewhere = [
        (command.partition(":train")[0], address)
        for command, address in interrupted.listening
        if not ip_address(address.removeprefix("::ffff:")).is_loopback
    ]
    assert elsewhere == [("ray::RayTrainWorker", "::")], "torch's own store, at which the workers of a trial meet"


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended in between
        return False


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [(signal.SIGINT, LORA)], ids=["lora"], indirect=True)
def test_a_lora_trial_learns_and_its_adapters_load_from_mlflow_alone(interrupted: Interrupted) -> None:
    import torch

    run_ = interrupted.trials()[0]
    history = sorted(interrupted.client.get_metric_history(run_.info.run_id, "eval/loss"), key=lambda point: point.step)
    assert history[-1].value < history[0].value < 1.9  # the base model's own is about 1.8
    assert run_.data.metrics["eval/perplexity"] == pytest.approx(math.exp(history[-1].value))
    assert run_.data.metrics["train/tokens_per_second"] > 0
    assert interrupted.document["best"]["trial"] == "0000"
    folder = artifacts.download_artifacts(interrupted.document["best"]["checkpoint"], tracking_uri=interrupted.store)
    assert (Path(folder) / "adapter_model.safetensors").stat().st_size < 1_000_000
    for merge in (False, True):
        logits = load_model(folder, merge=merge)(input_ids=torch.tensor([[70, 71]])).logits
        assert logits.shape == (1, 2, 384)


def test_an_interrupted_sweep_keeps_all_checkpoints_since_it_can_go_on(interrupted: Interrupted) -> None:
    for trial in interrupted.document["trials"]:  # though checkpoint.trials=1
        assert interrupted.client.list_artifacts(trial["run_id"], "checkpoints/best")
        assert [*(interrupted.folder / "outputs" / "mine" / "trials" / trial["trial"]).glob("step-*")]
