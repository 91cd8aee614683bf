"""LoRA in bf16: our loop, with what may make it faster, beside Hugging Face's ``Trainer``; one process, in turn.

The imports are paid once, and every measurement is written before the next one begins. What stands first is worth most.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from gpu.results import Results, run_part, say


@dataclass(frozen=True)
class Batch:
    """Sequences of a step and tokens of each, and the steps between two readings of the clock."""

    rows: int
    length: int
    block: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.length:,}"


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    title: str
    train: dict[str, Any] = field(default_factory=dict)
    """Keys of our loop."""
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    """Context in which our loop runs."""
    is_ours: bool = True


@contextlib.contextmanager
def layers_of_peft() -> Iterator[None]:
    """Leave adapted layers as peft makes them."""
    with mock.patch("sweeps_train.models.fused_lora.fuse_lora"):
        yield


DEFAULT = Arm("`sweeps_train`")
COMPILED = Arm("the same, `train.compile=true`", {"compile": True})
LAUNCHED = Arm("the same, `train.cuda_graphs=false`", {"cuda_graphs": False})
COMPILED_LAUNCHED = Arm(
    "the same, `train.compile=true train.cuda_graphs=false`", {"compile": True, "cuda_graphs": False}
)
UNFUSED = Arm("the same, `train.cuda_graphs=false`, adapters by peft", {"cuda_graphs": False}, around=layers_of_peft)
TRAINER = Arm("Hugging Face `Trainer`", is_ours=False)

BIG, LITTLE = Batch(8, 2048, 4), Batch(1, 512, 15)


def plan(*, tiny: bool) -> list[tuple[Any, Batch, Arm | None]]:
    """Measurements in the order of their worth; None instead of an arm profiles the first one."""
    from gpu import bases

    if tiny:
        batch = Batch(2, 32, 2)
        arms = (DEFAULT, TRAINER, COMPILED, None, LAUNCHED, UNFUSED, COMPILED_LAUNCHED)
        return [(bases.TINY, batch, arm) for arm in arms]
    return [
        *((bases.SMALL, batch, arm) for batch in (BIG, LITTLE) for arm in (DEFAULT, TRAINER)),
        *((bases.LARGE, BIG, arm) for arm in (DEFAULT, TRAINER, COMPILED)),
        *((bases.SMALL, batch, COMPILED) for batch in (LITTLE, BIG)),
        (bases.SMALL, LITTLE, None),
        (bases.LARGE, BIG, None),
        *((bases.SMALL, batch, arm) for batch in (LITTLE, BIG) for arm in (LAUNCHED, UNFUSED)),
        *((bases.SMALL, batch, COMPILED_LAUNCHED) for batch in (LITTLE, BIG)),
    ]


def measure(results: Results, tiny: bool) -> None:
    """Measure all arms."""
    results.add("imports", seconds=_import_all())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SWEEPS_CACHE"] = str(Path(folder) / "cache")
        failed = 0
        for base, batch, arm in plan(tiny=tiny):
            title = "profile" if arm is None else arm.title
            say(f"{base.name}, {batch}: {title}")
            try:
                numbers = (
                    _profiled(base, batch, Path(folder))
                    if arm is None
                    else _timed(base, batch, arm, Path(folder), tiny)
                )
            except Exception as error:  # noqa: BLE001 - one arm that fails does not cost the others
                traceback.print_exc()
                failed += 1
                results.add("failed", model=base.name, batch=str(batch), arm=title, error=repr(error)[:500])
            else:
                results.add(
                    "profile" if arm is None else "arm", model=base.name, batch=str(batch), arm=title, **numbers
                )
            clean_up()
    if failed:
        raise SystemExit(f"{failed} arms failed")


def _import_all() -> dict[str, float]:
    """Import what all arms need; seconds by library."""
    seconds = {}
    for name in ("torch", "transformers", "peft", "transformers.trainer", "sweeps_train.loop", "trained.arms"):
        say(f"importing {name}")
        began = time.perf_counter()
        __import__(name)
        seconds[name] = time.perf_counter() - began
    return seconds


def _timed(base: Any, batch: Batch, arm: Arm, folder: Path, tiny: bool) -> dict[str, Any]:
    """Numbers of one arm."""
    from gpu.step_clock import StepClock
    from sweeps_train.devices.device_operations import counts_memory, peak_memory, reset_peak_memory
    from sweeps_train.devices.worker_device import worker_device

    device = worker_device()
    reset_peak_memory(device)
    clock = StepClock(device, batch.block, *((3, 1.0) if tiny else (12, 3.0)))
    if arm.is_ours:
        last = _train_ours(base, batch, arm, folder, clock)
    else:
        last = _train_with_trainer(base, batch, folder, clock)
    step = statistics.median(clock.blocks)
    return {
        "tokens_per_second": batch.rows * batch.length / step,
        "step_s": step,
        "blocks": clock.blocks,
        "first_step_s": clock.first_s,
        "warm_s": clock.warm_s,
        "peak_gpu_mib": peak_memory(device) / 2**20 if counts_memory(device) else None,
        **last,
    }


def _profiled(base: Any, batch: Batch, folder: Path) -> dict[str, Any]:
    """Launches, and the time in which the device computes, in a step of our loop."""
    from gpu.step_clock import StepProfile
    from sweeps_train.devices.worker_device import worker_device

    profile = StepProfile(worker_device())
    _train_ours(base, batch, LAUNCHED, folder, profile)
    return profile.found


def _train_ours(base: Any, batch: Batch, arm: Arm, folder: Path, hook: Any) -> dict[str, Any]:
    """Train with our loop until the hook has enough; its last metrics."""
    from gpu.bases import TINY, random_weights, training_config
    from gpu.last_metrics import LastMetrics
    from gpu.step_clock import after_each_step
    from sweeps_train import TRAINING_CONFIG, train
    from sweeps_train.devices.worker_device import worker_device

    reporter = LastMetrics()
    train_keys = {
        "log_every": batch.block,
        **arm.train,
        **({"peak_tflops": 0.1} if base is TINY else {}),
    }  # that of CPUs is unknown
    config = training_config(base, folder, batch.rows, batch.length, train=train_keys)
    with random_weights(worker_device()), arm.around(), after_each_step(hook):
        train(TRAINING_CONFIG.validate_python(config), reporter=reporter, checkpoint_folder=None)
    return reporter.of_interest()


def _train_with_trainer(base: Any, batch: Batch, folder: Path, hook: Any) -> dict[str, Any]:
    """Train with ``transformers.Trainer`` until the hook has enough; its last loss."""
    from trained.arms import huggingface

    from gpu.bases import random_weights, training_config
    from gpu.step_clock import after_each_step
    from sweeps_train.devices.worker_device import worker_device

    config = training_config(base, folder, batch.rows, batch.length, train={"log_every": batch.block})
    (folder / "training.json").write_text(json.dumps(config), encoding="utf-8")
    printed = io.StringIO()
    own = mock.patch.dict(os.environ, {"RANK": "0", "WORLD_SIZE": "1"})
    with own, random_weights(worker_device()), after_each_step(hook), contextlib.redirect_stdout(printed):
        huggingface(folder)
    losses = [json.loads(line)["train/loss"] for line in printed.getvalue().splitlines() if line.startswith('{"step"')]
    return {"loss": losses[-1]}


def clean_up() -> None:
    """Free the model, and what torch has compiled."""
    import torch

    from sweeps_train.devices.device_operations import empty_cache
    from sweeps_train.devices.worker_device import worker_device
    from sweeps_train.workers import worker_cache

    torch.compiler.reset()
    worker_cache.evict("base model")
    gc.collect()
    empty_cache(worker_device())


if __name__ == "__main__":
    run_part("speed", measure)
