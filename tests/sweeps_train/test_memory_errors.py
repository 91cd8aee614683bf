"""Errors by which devices and their libraries say that memory is too small, in steps and in evaluations."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_captured_passes import Replays
from training_runs import IMAGES, configured, on_two_workers, run

from sweeps_train.errors import MicroBatchHalved, is_out_of_memory
from sweeps_train.steps import captured_passes
from sweeps_train.steps.captured_passes import CapturedPasses
from sweeps_train.strategies.strategy import Strategy
from sweeps_train.tasks.image_classification import ImageClassification

CONFIG = configured(
    IMAGES, model={"dropout": 0.0}, train={"max_steps": 4, "global_batch_size": 64, "eval_every": 2, "log_every": 2}
)
ERRORS = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "driver": torch.AcceleratorError("CUDA error: out of memory"),
    "NCCL": RuntimeError("NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"),
    # As in sgl-project/sglang#1116 and pytorch/torchtitan#660: the driver's words are in NCCL's log.
    "NCCL's buffers": RuntimeError(
        "NCCL error in: NCCLUtils.cpp:76, unhandled cuda error\nLast error:\nFailed to CUDA calloc 67108864 bytes"
    ),
    "cuDNN 9": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    "cuSOLVER": RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"),
    "driver's own name": RuntimeError("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY"),
    "CPU": RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"),
}


@pytest.mark.parametrize("source", ERRORS)
def test_all_errors_of_a_full_memory_are_known(source: str) -> None:
    assert is_out_of_memory(ERRORS[source])


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes cannot be multiplied"), ValueError("out of memory"), MicroBatchHalved(8, 4)]
)
def test_other_errors_are_not_taken_for_a_full_memory(error: Exception) -> None:
    assert not is_out_of_memory(error)


def fail_above(method: str, rows: int, error: Exception, patched: pytest.MonkeyPatch) -> list[int]:
    """Make a method of the task raise when it gets more rows, and return the list of the numbers of rows it gets."""
    original, sizes = getattr(ImageClassification, method), []

    def limited(task: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        if method == "score" or logits.requires_grad:
            sizes.append(len(logits))
            if len(logits) > rows:
                raise error
        return original(task, logits, batch)

    patched.setattr(ImageClassification, method, limited)
    return sizes


@pytest.mark.parametrize("source", ["cuBLAS", "driver"])
def test_a_step_is_repeated_in_halves_whoever_ran_out_of_memory(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(CONFIG).final
    sizes = fail_above("loss", 40, ERRORS[source], monkeypatch)
    assert run(CONFIG).final["eval/loss"] == pytest.approx(expected["eval/loss"], rel=1e-4)
    assert max(sizes) == 64
    assert sizes.count(64) == 1


def test_a_full_memory_is_freed_of_cuda_graphs_before_micro_batches_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the graph itself holds the memory, and the training runs on a CPU."""
    config, graphs = replace(CONFIG, train=replace(CONFIG.train, max_steps=10)), weakref.WeakSet[Replays]()
    expected, loss = run(config).final, ImageClassification.loss
    sizes: list[int] = []

    class Graph(Replays):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            graphs.add(self)

    def capture(strategy: Strategy, note: Callable[[str], None]) -> None:
        strategy._captured = CapturedPasses(strategy._pass, list(strategy.parameters.values()), note)

    def limited(task: Any, logits: torch.Tensor, batch: Any) -> torch.Tensor:
        if logits.requires_grad:
            sizes.append(len(logits))
            if graphs and Replays.replayed == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return loss(task, logits, batch)

    monkeypatch.setattr(captured_passes, "_Graph", Graph)
    monkeypatch.setattr(Replays, "replayed", 0)
    monkeypatch.setattr(Strategy, "capture_passes", capture)
    monkeypatch.setattr(ImageClassification, "loss", limited)
    recorder = run(config)
    assert Replays.replayed == 2
    assert sizes == [64] * 11
    assert recorder.final["eval/loss"] == pytest.approx(expected["eval/loss"], rel=1e-6)
    assert not recorder.notes


def test_an_evaluation_is_repeated_in_halves_and_scores_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(CONFIG).final
    sizes = fail_above("score", 20, ERRORS["torch"], monkeypatch)
    final = run(CONFIG).final
    assert final["eval/loss"] == pytest.approx(expected["eval/loss"], rel=1e-6)
    assert final["eval/accuracy"] == expected["eval/accuracy"]
    assert [sizes.count(rows) for rows in (64, 32)] == [1, 1]  # smaller ones from then on, in later evaluations, too


def evaluation_of_workers_that_wait_for_each_other() -> tuple[str, int]:
    config = configured(
        IMAGES, train={"max_steps": 2, "global_batch_size": 64, "eval_every": 2}, strategy={"kind": "fsdp"}
    )
    with pytest.MonkeyPatch.context() as patched:
        fail_above("score", 20, ERRORS["torch"], patched)
        with pytest.raises(MicroBatchHalved) as raised:
            run(config)
    return str(raised.value), raised.value.half


def test_workers_that_wait_for_each_other_in_an_evaluation_are_started_again_with_half(tmp_path: Path) -> None:
    results = on_two_workers(evaluation_of_workers_that_wait_for_each_other, tmp_path)
    assert [half for _, half in results] == [16, 16]
