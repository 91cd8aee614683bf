"""Two gloo workers that train one model, compared with each other and with one process."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from training_runs import (
    DURING_EVALUATION_AT_STEP_4,
    IMAGES,
    PACKED,
    STOP_AT_STEP_4,
    STOP_AT_STEP_6,
    TEXT,
    Recorder,
    configured,
    on_two_workers,
    run,
    write_prompts,
)

from sweeps_train.reports.reporter import Stop

# Without dropout, so that only rounding is left between one worker and two.
SAME_ON_ANY_NUMBER = {
    # Adam is blind to a wrong scale of the gradients, and amplifies rounding: on one host to a difference of 1e-4.
    "images in micro batches": configured(
        IMAGES, model={"dropout": 0.0}, train={"micro_batch_size": 50, "optimizer": "sgd", "lr": 1e-2}
    ),
    "text in micro batches": configured(
        TEXT, model={"lora": {"r": 4, "target_modules": "all-linear"}}, train={"micro_batch_size": 2}
    ),
    "packed text, all weights, sgd": configured(
        TEXT,
        model={"lora": None},
        data={**PACKED, "sequence_length": 32},
        train={"optimizer": "sgd", "lr": 1e-2, "warmup_fraction": 0.2},
    ),
}
RESUMED = {"images": IMAGES, "text": TEXT}
DISCARDED = STOP_AT_STEP_4, DURING_EVALUATION_AT_STEP_4


@dataclass
class Results:
    unbroken: dict[str, Recorder]
    stopped: dict[str, Recorder]
    resumed: dict[str, Recorder]
    discarded: dict[int, Recorder]
    """Recorders by the number of times that they were asked to stop."""
    same: dict[str, Recorder]
    written_kib: dict[str, int] = field(default_factory=dict)
    """KiB of each mapped file of weights, by path, that this worker no longer shares with others."""


def scenario() -> Results:
    """Run on each of the two workers."""
    results = Results({}, {}, {}, {}, {})
    for name, base in RESUMED.items():
        config = configured(base)
        results.unbroken[name] = run(config, Path(f"{name}-unbroken"))
        results.stopped[name] = run(config, Path(f"{name}-broken"), stop_when_asked=STOP_AT_STEP_6)
        results.resumed[name] = run(config, Path(f"{name}-broken"))
        if name == "images":
            for asked in DISCARDED:
                folder = Path(f"{name}-discarded-{asked}")
                results.discarded[asked] = run(config, folder, stop_when_asked=asked, stop=Stop.DISCARD)
    results.written_kib = {
        each.path: each.private_dirty // 1024
        for each in psutil.Process().memory_maps()
        if each.path.endswith("model.safetensors")
    }
    for name, config in SAME_ON_ANY_NUMBER.items():
        results.same[name] = run(config)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two-workers")
    write_prompts(folder)
    return folder


@pytest.fixture(scope="module")
def two_workers(folder: Path) -> list[Results]:
    return on_two_workers(scenario, folder)


@pytest.mark.parametrize("task", RESUMED)
def test_a_stop_request_ends_all_workers_at_the_next_boundary_with_a_checkpoint(
    task: str, two_workers: list[Results], folder: Path
) -> None:
    first, second = two_workers
    assert list(first.stopped[task].logs) == [2, 6]
    assert [(step, done) for step, _, _, done in first.stopped[task].reports] == [(4, False)]
    # It went on from step 6: nothing is repeated, since nothing was reported there.
    assert [(step, done) for step, _, _, done in first.resumed[task].reports] == [(8, True)]
    assert list(first.resumed[task].logs) == []
    for recorder in (second.stopped[task], second.resumed[task]):
        assert (recorder.asked, recorder.logs, recorder.reports) == (0, {}, [])


@pytest.mark.parametrize("asked", DISCARDED, ids=["before an evaluation", "during an evaluation"])
def test_a_request_to_discard_ends_all_workers_at_once_and_without_a_checkpoint(
    asked: int, two_workers: list[Results], folder: Path
) -> None:
    first = two_workers[0].discarded[asked]
    assert (list(first.logs), first.reports, first.asked) == ([2], [], asked)
    assert not (folder / f"images-discarded-{asked}").exists()


@pytest.mark.parametrize("task", RESUMED)
def test_a_resumed_training_equals_an_unbroken_one_to_the_last_bit(
    task: str, two_workers: list[Results], folder: Path
) -> None:
    unbroken, resumed = two_workers[0].unbroken[task].final, two_workers[0].resumed[task].final
    assert learned(resumed) == learned(unbroken)
    weights = "model.safetensors" if task == "images" else "adapter_model.safetensors"
    last = Path("step-00000008", weights)
    assert (folder / f"{task}-broken" / last).read_bytes() == (folder / f"{task}-unbroken" / last).read_bytes()


@pytest.mark.parametrize("name", SAME_ON_ANY_NUMBER)
def test_two_workers_train_and_evaluate_as_one_worker_does(
    name: str, two_workers: list[Results], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    one, two = run(SAME_ON_ANY_NUMBER[name]), two_workers[0].same[name]
    assert [step for step, *_ in two.reports] == [4, 8]
    for (_, expected, *_), (_, actual, *_) in zip(one.reports, two.reports, strict=True):
        workers = {"train/num_workers": 2.0}
        assert learned(actual) == pytest.approx(learned(expected) | workers, rel=1e-4)
    assert one.final["eval/loss"] != one.reports[0][1]["eval/loss"]


def test_one_worker_resumes_from_a_checkpoint_of_two(two_workers: list[Results], folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "images-unbroken", tmp_path / "checkpoints")
    recorder = run(configured(IMAGES, train={"max_steps": 12}), tmp_path / "checkpoints")
    assert [(step, done) for step, _, _, done in recorder.reports] == [(8, False), (12, True)]
    assert recorder.final["train/num_workers"] == 1
    assert recorder.final["train/epoch"] == pytest.approx(12 * 400 / 1707)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say which pages are shared")
def test_workers_share_the_pages_of_a_frozen_base_model(two_workers: list[Results]) -> None:
    for worker in two_workers:
        base = [path for path in worker.written_kib if "tiny_llama" in path]
        assert len(base) == 1
        assert worker.written_kib[base[0]] < 64


def learned(metrics: dict[str, float]) -> dict[str, Any]:
    """Metrics without those of the machine: speed and memory."""
    return {
        name: value
        for name, value in metrics.items()
        if name.startswith(("train/", "eval/")) and not name.endswith(("_per_second", "data_wait_share"))
    }
