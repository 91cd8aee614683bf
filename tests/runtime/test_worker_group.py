"""Warm slots: nothing leaks from one trial into the next, and a slot that breaks is rebuilt."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from attempts import end_of
from running import SHORT, Done, own_network, points, run

from sweeps.runtime.attachment import Begun
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Report, Started

pytestmark = [pytest.mark.timeout(300), pytest.mark.anyio]

PLAIN = ("search=optuna", "search.default_first=false")


def histories(done: Done, trial: str) -> dict[str, list[tuple[int, float]]]:
    """Losses of a trial by metric: (step, value)."""
    run_id = done.trial(trial).info.run_id
    return {name: done.history(run_id, name) for name in ("train/loss", "eval/loss", "train/lr")}


DIGITS: dict[str, Any] = {
    "model": "vision_transformer",
    "model.depth": 2,
    "model.dropout": 0.2,
    "train.lr": 0.003,
    "train.optimizer": "adamw",
    "train.global_batch_size": 32,
}
OTHERS: list[dict[str, Any]] = [
    {**DIGITS, "train.lr": 0.05, "model.dropout": 0.0},
    {**DIGITS, "train.optimizer": "sgd", "train.momentum": 0.9},
    {**DIGITS, "model": "conv_net", "model.channels": 8, "train.global_batch_size": 64},
    {**DIGITS, "model.depth": 3},
]
for _other in OTHERS:
    if _other["model"] == "conv_net":
        del _other["model.depth"]


@pytest.mark.slow
def test_a_trial_is_the_same_to_the_last_bit_in_fresh_processes_and_as_the_fifth_in_a_slot(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("fresh", "warm")]
    for folder in folders:
        folder.mkdir()
    fresh = run(
        folders[0], "conf=digits", *PLAIN, *SHORT, "scaling.isolation=process", points(DIGITS), "search.num_trials=1"
    )
    warm = run(folders[1], "conf=digits", *PLAIN, *SHORT, points(*OTHERS, DIGITS), "search.num_trials=5")
    assert warm.document["counts"]["finished"] == 5
    assert warm.document["trials"][4]["params"] == fresh.document["trials"][0]["params"]
    assert histories(warm, "0004") == histories(fresh, "0000")
    assert histories(warm, "0003") != histories(fresh, "0000")
    assert len(list((folders[1] / "outputs").glob("*/ray_train/slot-*"))) == 1


@pytest.mark.slow
def test_a_lora_trial_is_the_same_in_fresh_processes_and_as_the_fifth_in_a_slot(tmp_path: Path) -> None:
    lora: dict[str, Any] = {
        "train.lr": 0.005,
        "model.lora.r": 4,
        "model.lora.alpha": 16,
        "model.lora.dropout": 0.1,
        "model.lora.target_modules": "attention",
        "train.global_batch_size": 8,
        "train.schedule": "linear",
    }
    others = [
        {**lora, "model.lora.target_modules": "mlp"},
        {**lora, "model.lora.target_modules": "all-linear", "model.lora.r": 32},
        {**lora, "train.global_batch_size": 32},
        {**lora, "train.lr": 0.03},
    ]
    tokens = ("conf=llm_lora", *PLAIN, "train.max_steps=12", "train.eval_every=6", "train.log_every=3")
    folders = [tmp_path / name for name in ("fresh", "warm")]
    for folder in folders:
        folder.mkdir()
    fresh = run(folders[0], *tokens, "scaling.isolation=process", points(lora), "search.num_trials=1")
    warm = run(folders[1], *tokens, points(*others, lora), "search.num_trials=5")
    assert histories(warm, "0004") == histories(fresh, "0000")


FAULTY = """
import os, time
from pathlib import Path
import torch

HOARD = []

class Net(torch.nn.Module):
    def __init__(self, fault, width=8):
        super().__init__()
        self.fault, self.calls = fault, 0
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, 10))

    def forward(self, images):
        self.calls += self.training
        rank = os.environ["RANK"]
        mark = Path("{folder}") / f"{self.fault}-{rank}"
        if self.calls == 12 and not mark.exists():
            mark.touch()
            if self.fault == "dies" and rank == "1":
                os.kill(os.getpid(), 9)
            if self.fault == "hangs" and rank == "1":
                time.sleep(10_000)
            if self.fault == "out_of_memory" and rank == "0":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            if self.fault == "raises" and rank == "0":
                raise RuntimeError("CUDA error: device-side assert triggered")
            if self.fault == "hoards" and rank == "1":
                HOARD.append(bytearray(2**30))
        if self.calls == 12 and self.fault == "fails_again":
            raise RuntimeError(f"the fault of this test, at {time.time_ns()}")
        return self.layers(images)
"""


@pytest.mark.slow
def test_faults_fail_or_retry_one_trial_and_the_slot_is_rebuilt(tmp_path: Path) -> None:
    faults = ["none", "dies", "raises", "out_of_memory", "hoards", "nothing", "fails_again"]
    done = run(
        tmp_path,
        *own_network(tmp_path, FAULTY.replace("{folder}", str(tmp_path))),
        f"model.arguments.fault=choice({', '.join(faults)})",
        *PLAIN,
        points(*({"model.arguments.fault": fault} for fault in faults)),
        f"search.num_trials={len(faults)}",
        "search.max_retries=1",
        *SHORT,
    )
    trials = {trial["params"]["model.arguments.fault"]: trial for trial in done.document["trials"]}
    states = {name: trial["state"] for name, trial in trials.items()}
    assert states == dict.fromkeys(faults, "finished") | {"fails_again": "failed"}, done.err
    attempts = {name: trial["attempts"] for name, trial in trials.items()}
    assert attempts == dict.fromkeys(faults, 1) | {"dies": 2, "raises": 2, "fails_again": 2}
    assert done.status == 0
    assert "device-side assert" in done.err
    assert "Traceback" not in done.err
    # One for the first trials, one after each of the three faults, and one after the trial that left memory behind.
    slots = {path.name for path in (tmp_path / "outputs").glob("*/ray_train/slot-*")}
    assert slots == {"slot-0000-1", "slot-0001-2", "slot-0002-2", "slot-0005-1", "slot-0006-2"}
    *others, failed = done.trials()
    for trial in others:
        assert [step for step, _ in done.history(trial.info.run_id, "eval/loss")] == [10, 20, 30, 40]
    fault = r"RuntimeError: the fault of this test, at (\d+)"
    first = re.search(f"attempt 1 failed: {fault}", done.err)
    last = re.search(fault, failed.data.tags["sweeps.error"])
    assert first is not None
    assert last is not None
    assert int(first[1]) < int(last[1])  # it is the last attempt's


async def test_workers_that_are_still_starting_do_not_hang_yet() -> None:
    broker = Broker()
    await broker.stop_waiting_for_answers()
    await broker.begin("0000")
    report = asyncio.create_task(broker.next_outcome("0000", 0.1))
    await asyncio.sleep(0.5)
    assert not report.done()
    await broker.post(Started("0000", 1, 0))
    assert "its workers hang" in str((await end_of(report)).error)


@pytest.mark.slow
def test_a_hung_trial_is_ended_and_other_slots_never_notice(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *own_network(tmp_path, FAULTY.replace("{folder}", str(tmp_path))),
        "model.arguments.fault=choice(none, hangs)",
        "model.arguments.width=choice(8, 9, 10, 11)",
        "search=grid",
        "search.num_trials=8",
        "cluster.num_cpus=4",
        "scaling.hang_timeout_s=15",
        *SHORT,
    )
    assert done.document["counts"]["finished"] == 8
    attempts = sorted(trial["attempts"] for trial in done.document["trials"])
    assert attempts == [1] * 7 + [2]
    assert "no report for" in done.err


async def test_an_attempt_learns_of_the_last_report_of_the_one_before() -> None:
    broker = Broker()
    await broker.begin("0000")
    for step in (2, 4):
        await broker.post(Report("0000", 1, step, {"eval/loss": 1.0}, 1000))
    assert await broker.begin("0000") == Begun(2, 4)
