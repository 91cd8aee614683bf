"""Silent data corruption: a bit that flips on one worker is found and the worker named, and a check changes nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import IMAGES, after_each_step, configured, exits_of_workers, on_workers, run

from sweeps.worker_error import FROM_OUTSIDE
from sweeps_train.errors import SilentCorruption
from sweeps_train.lanes.lane import Lane

CHECKED = {"max_steps": 8, "global_batch_size": 402, "deterministic": True, "corruption_check_every": 2}
BATCH_NORM_AND_DROPOUT: dict[str, Any] = {**IMAGES, "model": {"kind": "conv_net", "channels": 4, "dropout": 0.2}}


def flip_a_bit(of: Lane) -> None:
    """Flip the lowest bit of one weight on the last worker, after the third step."""
    if of.progress.step == 3 and of.workers.rank == of.workers.size - 1:
        weight = next(iter(of.strategy.parameters.values())).data.view(torch.int32)
        weight.view(-1)[3] ^= 1


def training(every: int | None) -> list[tuple[int, dict[str, float]]]:
    config = configured(BATCH_NORM_AND_DROPOUT, train={**CHECKED, "corruption_check_every": every})
    return [(step, metrics) for step, metrics, *_ in run(config).reports]


def both() -> Any:
    return [
        [(step, metrics["train/loss"], metrics["eval/loss"]) for step, metrics in training(each)] for each in (2, None)
    ]


def corrupted() -> str:
    after_each_step(pytest.MonkeyPatch(), flip_a_bit)  # in a process of its own
    try:
        run(configured(IMAGES, train=CHECKED))
    except SilentCorruption as error:
        return str(error)
    except RuntimeError as error:
        return type(error).__name__
    return "nothing"


@pytest.mark.slow
def test_a_training_with_checks_is_the_same_as_without(tmp_path: Path) -> None:
    for checked, unchecked in on_workers(2, both, tmp_path):
        assert checked == unchecked


def test_a_flipped_bit_names_the_worker_that_differs_from_most(tmp_path: Path) -> None:
    _, (*others, found) = exits_of_workers(3, corrupted, tmp_path)
    assert re.match(r"silent data corruption after step 4: worker 2 on \S+ computed another loss", found)
    assert found.endswith("than the other 2 workers")
    assert "nothing" not in others, "they end, too"


def test_of_two_workers_both_are_named(tmp_path: Path) -> None:
    _, texts = exits_of_workers(2, corrupted, tmp_path)
    for text in texts:
        assert re.match(r"silent data corruption after step 4: workers 0 on \S+, 1 on \S+ compute different", text)


def test_corruption_may_pass_on_other_nodes() -> None:
    assert FROM_OUTSIDE.search(str(SilentCorruption(4, [2], ["a", "b", "c"])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"corruption_check_every": 5}}, r"corruption_check_every=5 compares .*deterministic=true"),
        ({"train": CHECKED, "strategy": {"kind": "fsdp"}}, r"train\.corruption_check_every=2 .* use strategy=ddp"),
    ],
)
def test_a_check_needs_whole_models_and_deterministic_algorithms(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured(IMAGES, **changes)
