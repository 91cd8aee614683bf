"""Memory of training steps on the CPU beside what ``sweeps_train.memory_need`` computes for them without training.

Run: python benchmarks/memory_estimate.py

Each row is a process of its own: two steps of the language model that ships with Sweeps. Measured is the growth of the
process's resident memory from before the first step to its peak (Linux: ``VmHWM`` of /proc), without the weights, which
are there before.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
from pathlib import Path
from typing import Any

from sweeps_train.config import TRAINING_CONFIG, TrainingConfig

MIB = 2**20
CASES = [
    (lora, checkpointing, rows, length)
    for lora, checkpointing in ((True, False), (False, False), (False, True))
    for rows, length in ((4, 512), (16, 512), (32, 1024))
]


def config_of(lora: bool, checkpointing: bool, rows: int, length: int) -> TrainingConfig:
    document: dict[str, Any] = {
        "task": {"kind": "causal_lm"},
        "model": {
            "kind": "causal_lm",
            "path": "builtin:tiny_llama",
            "gradient_checkpointing": checkpointing,
            "lora": {"r": 8} if lora else None,
        },
        "data": {"kind": "text", "path": "builtin:stdlib_docstrings", "sequence_length": length},
        "train": {"max_steps": 2, "global_batch_size": rows},
        "strategy": {"kind": "ddp"},
        "checkpoint": {},
    }
    return TRAINING_CONFIG.validate_python(document)


def measure(case: tuple[bool, bool, int, int], found: Any) -> None:
    """Make two steps, and put the growth of resident memory in bytes into ``found``."""
    import torch

    from sweeps_train.distributed import Workers
    from sweeps_train.optimizer import build_optimizer
    from sweeps_train.precision import Precision
    from sweeps_train.strategies import build_strategy
    from sweeps_train.tasks import build_task

    torch.set_num_threads(1)
    config = config_of(*case)
    task, cpu = build_task(config), torch.device("cpu")
    strategy = build_strategy(config.strategy, Workers(0, 1, cpu), Precision("fp32", cpu))
    strategy.parallelize(task)
    optimizer = build_optimizer(strategy.parameters.values(), config.train)
    strategy.backward([task.train_samples.batch([0])], 1.0)  # loads kernels
    strategy.zero_grad()
    batch = task.train_samples.batch(range(case[2]))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here
    before = status("VmRSS")
    for _ in range(2):
        strategy.backward([batch], 1.0)
        optimizer.step()
        strategy.zero_grad()
    found.put(status("VmHWM") - before)


def status(name: str) -> int:
    """A line of /proc/self/status in bytes."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) * 1024  # type: ignore[index]


def main() -> None:
    from sweeps_train.memory_need import memory_need

    context = multiprocessing.get_context("spawn")
    print(f"{'trained':8} {'checkpointing':13} {'samples':>7} {'tokens':>6}   measured   computed  ratio")
    for case in CASES:
        found = context.SimpleQueue()
        process = context.Process(target=measure, args=(case, found))
        process.start()
        process.join()
        if process.exitcode != 0:
            sys.exit(f"the measurement of {case} ended with status {process.exitcode}")
        measured = found.get()
        need = memory_need(config_of(*case), 1, None, use_gpu=False)
        computed = need.total - need.weights
        lora, checkpointing, rows, length = case
        print(
            f"{'LoRA' if lora else 'all':8} {checkpointing!s:13} {rows:7} {length:6} {measured / MIB:6.0f} MiB "
            f"{computed / MIB:6.0f} MiB {computed / measured:6.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
