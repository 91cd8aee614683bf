"""A global batch scaled by communication: only if configured, and then constant for a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from training_runs import IMAGES, STOP_AT_STEP_6, Recorder, configured, on_two_workers, run

from sweeps_train.errors import MicroBatchHalved
from sweeps_train.steps import batch_scaling
from sweeps_train.steps.batch_scaling import batch_factor

SIZE, MOST = 60, 200
TINY_SHARE, WHOLE_SHARE = 1e-9, 1 - 1e-9
SCALED = {"max_communication_share": 0.1, "max_global_batch_size": 800}


def images(**train: Any) -> Any:
    """Config without dropout: another number of micro batches would draw other masks."""
    return configured(IMAGES, model={"dropout": 0.0}, train={"global_batch_size": SIZE, **train})


def asking(share: float) -> Any:
    return images(max_communication_share=share, max_global_batch_size=MOST)


def scenario() -> dict[str, Recorder]:
    return {
        "thrice": run(images(global_batch_size=3 * SIZE, micro_batch_size=SIZE // 2)),
        "asked for nearly nothing": run(asking(TINY_SHARE)),
        "configured": run(images()),
        "asked for nearly all": run(asking(WHOLE_SHARE)),
        "stopped": run(asking(TINY_SHARE), Path("stopped"), stop_when_asked=STOP_AT_STEP_6),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("accumulation")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Recorder]:
    return on_two_workers(scenario, folder)[0]


@pytest.mark.parametrize(
    ("asked", "same"), [("asked for nearly nothing", "thrice"), ("asked for nearly all", "configured")]
)
def test_the_batch_that_is_chosen_trains_as_if_it_were_configured(
    asked: str, same: str, runs: dict[str, Recorder]
) -> None:
    for name in ("train/loss", "eval/loss"):
        assert runs[asked].final[name] == runs[same].final[name]
    assert runs[asked].progress[-1].samples == runs[same].progress[-1].samples


def test_the_chosen_batch_is_noted_and_recorded(runs: dict[str, Recorder]) -> None:
    recorder = runs["asked for nearly nothing"]
    assert recorder.final["train/global_batch_size"] == 3 * SIZE
    (note,) = recorder.notes
    assert f"each step takes {3 * SIZE} samples" in note
    assert runs["configured"].notes == []


def test_a_resumed_training_keeps_its_batch_with_another_number_of_workers(
    runs: dict[str, Recorder], folder: Path
) -> None:
    """One worker exchanges nothing, and would choose the smallest batch."""
    resumed = run(asking(TINY_SHARE), folder / "stopped")
    assert resumed.notes == []
    assert resumed.final["train/global_batch_size"] == 3 * SIZE
    assert resumed.final["eval/loss"] == pytest.approx(runs["thrice"].final["eval/loss"], rel=1e-4)
    assert resumed.progress[-1].samples == runs["thrice"].progress[-1].samples


@pytest.mark.parametrize(
    ("share", "exchange_s", "compute_s", "expected"),
    [
        (0.1, 0.0, 1.0, 1),
        (0.5, 1.0, 1.0, 1),
        (0.1, 1.0, 9.0, 1),
        (0.1, 1.0, 8.9, 2),
        (0.1, 1.0, 1.0, 9),
        (0.01, 1.0, 1.0, 10),
    ],
)
def test_the_smallest_batch_within_the_share_is_chosen(
    share: float, exchange_s: float, compute_s: float, expected: int
) -> None:
    assert batch_factor(share, exchange_s, compute_s, most=10) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"max_communication_share": 0.1}}, "belong together"),
        ({"train": {**SCALED, "max_global_batch_size": 8}}, "raise it, or lower global_batch_size"),
        ({"train": SCALED, "strategy": {"kind": "fsdp"}}, "is for strategy=ddp"),
        ({"train": SCALED, "strategy": {"compression": "powersgd"}}, "to none, fp16 or bf16"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        configured(IMAGES, **changes)


def test_a_worker_out_of_memory_while_it_is_timed_begins_again_with_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for it, to begin each repetition together."""

    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(batch_scaling, "probe_step", fail)
    with pytest.raises(MicroBatchHalved) as raised:
        run(asking(TINY_SHARE))
    assert raised.value.half == SIZE // 2
