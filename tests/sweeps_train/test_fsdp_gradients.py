"""Communication under full sharding: gradients between micro batches, and how often weights are gathered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor.debug import CommDebugMode
from training_runs import IMAGES, TEXT, configured, on_two_workers, run, write_prompts

from sweeps_train.steps.precision import Precision
from sweeps_train.strategies import dtensor
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.tasks import build_task
from sweeps_train.workers.distributed import Workers


def reduced_between_micro_batches(most_unsharded: int) -> tuple[list[bool], float]:
    """Whether sharded gradients exist before each last micro batch, and the last loss."""
    reduced: list[bool] = []
    before = dtensor.ShardedStrategy._before_micro_batch

    def watched(strategy: Any, *, is_last: bool) -> None:
        if is_last:
            reduced.append(all(each.grad is not None for each in strategy.parameters.values()))
        before(strategy, is_last=is_last)

    train = {"max_steps": 3, "global_batch_size": 64, "micro_batch_size": 16, "eval_every": 3}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(dtensor, "MOST_UNSHARDED", most_unsharded)
        patched.setattr(dtensor.ShardedStrategy, "_before_micro_batch", watched)
        recorder = run(configured(IMAGES, model={"dropout": 0.0}, train=train, strategy={"kind": "fsdp"}))
    return reduced, recorder.final["eval/loss"] if recorder.reports else 0.0


def both() -> list[tuple[list[bool], float]]:
    return [reduced_between_micro_batches(0), reduced_between_micro_batches(2**30)]


def test_gradients_of_a_large_model_are_reduced_after_each_micro_batch_with_the_same_losses(tmp_path: Path) -> None:
    (large, loss_of_large), (small, loss_of_small) = on_two_workers(both, tmp_path)[0]
    assert large == [True] * 3
    assert small == [False] * 3
    assert loss_of_large == pytest.approx(loss_of_small, rel=1e-5)


def gathers_in_a_step() -> int:
    """Number of times that weights are gathered in the forward and backward pass of a micro batch."""
    config = configured(TEXT, strategy={"kind": "fsdp"}, model={"lora": None})
    strategy = build_strategy(config.strategy, Workers.current(), Precision("fp32", torch.device("cpu")))
    task = build_task(config)
    strategy.parallelize(task)
    with CommDebugMode() as communication:
        strategy.backward([task.train_samples.batch([0, 1])], 1.0)
    return sum(number for kind, number in communication.get_comm_counts().items() if "gather" in str(kind))


def test_embeddings_and_head_stay_gathered_from_the_forward_to_the_backward_pass(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    layers = 3
    assert on_two_workers(gathers_in_a_step, tmp_path)[0] == 1 + 2 * layers
