"""Out of memory with strategies that communicate in every layer, in whole sweeps."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from running import SHORT, own_network, points, run

from sweeps_train.errors import MicroBatchHalved

SMALL_DEVICE = """
import os
import torch
from torch import nn


class SmallDevice(nn.Module):
    def __init__(self, takes):
        super().__init__()
        self.takes, self.calls = takes, 0

    def forward(self, given):
        self.calls += self.training
        if self.training and self.calls > 12 and len(given) > self.takes and os.environ["RANK"] == "1":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return given


class Net(nn.Sequential):
    def __init__(self, takes):
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10), SmallDevice(takes))
"""


def test_the_error_of_a_worker_can_be_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(MicroBatchHalved(16, 8)))
    assert sent.half == 8
    assert str(sent) == "out of memory: micro batches have 8 samples from the last checkpoint on, instead of 16"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_trial_whose_workers_wait_for_each_other_continues_with_half_the_micro_batch(tmp_path: Path) -> None:
    tried = [("fsdp", 100), ("fsdp", 8), ("pipeline", 8)]
    done = run(
        tmp_path,
        *own_network(tmp_path, SMALL_DEVICE),
        "model.arguments.takes=choice(8, 100)",
        "strategy=choice(fsdp, pipeline)",
        "train.global_batch_size=32",
        "+train.micro_batch_size=16",
        "search=optuna",
        "search.default_first=false",
        "search.max_retries=0",
        points(*({"strategy": strategy, "model.arguments.takes": takes} for strategy, takes in tried)),
        f"search.num_trials={len(tried)}",
        *SHORT,
    )
    trials = done.document["trials"]
    assert [trial["state"] for trial in trials] == ["finished"] * len(tried), done.err
    assert [trial["attempts"] for trial in trials] == [1] * len(tried)
    assert done.err.count("out of memory: micro batches have 8 samples from the last checkpoint on, instead of 16") == 2
    losses = [done.history(trial.info.run_id, "eval/loss") for trial in done.trials()]
    expected, *others = losses
    assert [step for step, _ in expected] == [10, 20, 30, 40]
    for other in others:
        assert [step for step, _ in other] == [step for step, _ in expected]
        assert [loss for _, loss in other] == pytest.approx([loss for _, loss in expected], rel=1e-3)
