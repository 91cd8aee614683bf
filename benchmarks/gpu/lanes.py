"""Several LoRA trainings on one base in one step, beside one at a time: replayed as CUDA graphs, and compiled."""

from __future__ import annotations

import os
import statistics
import tempfile
import traceback
from pathlib import Path
from typing import Any

from gpu.results import Results, run_part, say
from gpu.speed import clean_up

LENGTH = 512
COMPILED = "one, `train.compile=true`"
PLAN = [
    *((rows, lanes) for rows, most in ((1, 32), (4, 16), (16, 4)) for lanes in (0, 1, 2, 4, 8, 16, 32) if lanes <= most)
]
"""Sequences of a training's step, and lanes; 0 for a training alone."""
TINY_PLAN = [(1, 0), (1, 2), (2, 2)]


def measure(results: Results, tiny: bool) -> None:
    """Measure all arms, each training alone first by default and then compiled."""
    from gpu.bases import SMALL, TINY

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SWEEPS_CACHE"] = str(Path(folder) / "cache")
        for rows, lanes in TINY_PLAN if tiny else PLAN:
            for compiles in (False, True) if lanes == 0 and not tiny else (False,):
                title = (COMPILED if compiles else "one") if lanes == 0 else f"{lanes} lanes"
                say(f"{rows} x {LENGTH}: {title}")
                try:
                    numbers = _timed(TINY if tiny else SMALL, rows, lanes, Path(folder), tiny=tiny, compiles=compiles)
                except Exception as error:  # noqa: BLE001 - one arm that fails does not cost the others
                    traceback.print_exc()
                    failed += 1
                    results.add("failed", rows=rows, lanes=lanes, arm=title, error=repr(error)[:500])
                else:
                    results.add("arm", rows=rows, lanes=lanes, arm=title, **numbers)
                clean_up()
    if failed:
        raise SystemExit(f"{failed} arms failed")


def _timed(base: Any, rows: int, lanes: int, folder: Path, *, tiny: bool, compiles: bool) -> dict[str, Any]:
    """Numbers of one arm."""
    from lanes import train_at_once

    from gpu.bases import random_weights, training_config
    from sweeps_train.devices.device_operations import counts_memory, peak_memory, reset_peak_memory
    from sweeps_train.devices.worker_device import worker_device

    device = worker_device()
    reset_peak_memory(device)
    keys = {"compile": compiles, "cuda_graphs": not compiles}
    config = training_config(base, folder, rows, 32 if tiny else LENGTH, train=keys)
    with random_weights(device):
        found = train_at_once(config, lanes, rows, *((2, 2) if tiny else (8, 4)))
    step = statistics.median(found["seconds"])
    return {
        "step_s": step,
        "trial_steps_per_second": max(1, lanes) / step,
        "blocks": found["seconds"],
        "loss": found["loss"],
        "peak_gpu_mib": peak_memory(device) / 2**20 if counts_memory(device) else None,
    }


if __name__ == "__main__":
    run_part("lanes", measure)
