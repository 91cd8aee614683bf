"""The memory that our loop plans without training, beside the measured peak of some steps."""

from __future__ import annotations

import gc
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu.results import Results, run_part, say

STEPS = 8
"""The later ones are replayed as CUDA graphs."""


@dataclass(frozen=True)
class Case:
    """A training whose memory is planned and measured."""

    what: str
    base: Any
    rows: int
    length: int
    changes: dict[str, Any]


def cases(*, tiny: bool) -> list[Case]:
    """Four trainings: LoRA with many and few tokens, LoRA that recomputes activations, and all weights."""
    from gpu.bases import LARGE, LORA, SMALL, TINY

    small, large = (TINY, TINY) if tiny else (SMALL, LARGE)
    whole: dict[str, Any] = {"lora": None}
    return [
        Case("LoRA", small, *((2, 32) if tiny else (8, 2048)), {}),
        Case("LoRA", small, *((1, 32) if tiny else (1, 512)), {}),
        Case("all weights", small, *((2, 32) if tiny else (4, 1024)), {"model": whole}),
        Case(
            "LoRA, recomputed activations",
            large,
            *((2, 64) if tiny else (8, 2048)),
            {"model": {"lora": LORA, "gradient_checkpointing": True}},
        ),
    ]


def measure(results: Results, tiny: bool) -> None:
    """Plan and measure each case."""
    say("importing torch and sweeps_train")
    from sweeps_train.devices.device_operations import empty_cache
    from sweeps_train.devices.worker_device import worker_device
    from sweeps_train.workers import worker_cache

    with tempfile.TemporaryDirectory() as folder:
        os.environ["SWEEPS_CACHE"] = str(Path(folder) / "cache")
        for case in cases(tiny=tiny):
            title = f"{case.base.name}, {case.what}, {case.rows} x {case.length:,}"
            say(title)
            results.add("case", case=title, **compared(case, Path(folder)))
            worker_cache.evict("base model")
            gc.collect()
            empty_cache(worker_device())


def compared(case: Case, folder: Path) -> dict[str, Any]:
    """Planned and measured memory in MiB; on a CPU the peak of the process, which has more in it than the training."""
    from trained.gate import peaks

    from gpu.bases import random_weights, training_config
    from sweeps_train import TRAINING_CONFIG, train
    from sweeps_train.devices.device_operations import (
        counts_memory,
        peak_memory,
        peak_reserved_memory,
        reset_peak_memory,
    )
    from sweeps_train.devices.worker_device import worker_device
    from sweeps_train.memory.memory_need import memory_need

    device = worker_device()
    changes = {**case.changes, "train": {"max_steps": STEPS}}
    document = training_config(case.base, folder, case.rows, case.length, **changes)
    config = TRAINING_CONFIG.validate_python(document)
    say("planning")
    need = memory_need(config, 1, None, use_gpu=True)
    say("training")
    reset_peak_memory(device)
    with random_weights(device):
        train(config, reporter=None, checkpoint_folder=None)
    is_counted = counts_memory(device)
    peak = peak_memory(device) / 2**20 if is_counted else peaks()[0]
    return {
        "planned_mib": need.total / 2**20,
        "measured_mib": peak,
        "reserved_mib": peak_reserved_memory(device) / 2**20 if is_counted else None,
        "ratio": need.total / 2**20 / peak,
        "weights_mib": need.weights / 2**20,
        "activations_mib": need.activations / 2**20,
    }


if __name__ == "__main__":
    run_part("memory", measure)
