"""Memory of training steps on the CPU beside what ``sweeps_train.memory.memory_need`` computes without training.

    python benchmarks/memory_estimate.py --write benchmarks/measurements.md

takes about a minute on an idle core. Each row is a process of its own with one thread, forked from one that has all
imports: two steps of the language model that ships with Sweeps. Measured is the growth of the process's resident
memory from before the first step to its peak (Linux: ``VmHWM`` of /proc), without the weights, which are there before.
Each tensor has pages of its own (glibc's ``M_MMAP_THRESHOLD``), so that what the heap keeps in holes does not count.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from results_document import markdown_table, write_between_marks
from trained.tables import machine

from sweeps_train.config import TRAINING_CONFIG, TrainingConfig
from sweeps_train.memory.memory_need import memory_need
from sweeps_train.steps.optimizer import build_optimizer
from sweeps_train.steps.precision import Precision
from sweeps_train.strategies.build_strategy import build_strategy
from sweeps_train.tasks import build_task
from sweeps_train.workers.distributed import Workers

MIB = 2**20
M_MMAP_THRESHOLD = -3
"""From glibc's malloc.h."""


class Case(NamedTuple):
    """A training step to measure."""

    trained: str
    """``all``, ``LoRA``, or ``LoRA on nf4``."""
    checkpointing: bool
    rows: int
    length: int


CASES = [
    Case(trained, checkpointing, rows, length)
    for trained, checkpointing in (("LoRA", False), ("LoRA on nf4", False), ("all", False), ("all", True))
    for rows, length in ((4, 512), (16, 512), (16, 1024))
]


def config_of(case: Case) -> TrainingConfig:
    """The training of a case."""
    document: dict[str, Any] = {
        "task": {"kind": "causal_lm"},
        "model": {
            "kind": "causal_lm",
            "path": "builtin:tiny_llama",
            "gradient_checkpointing": case.checkpointing,
            "quantization": "nf4" if "nf4" in case.trained else "none",
            "lora": None if case.trained == "all" else {"r": 8},
        },
        "data": {"kind": "text", "path": "builtin:stdlib_docstrings", "sequence_length": case.length},
        "train": {"max_steps": 2, "global_batch_size": case.rows},
        "strategy": {"kind": "ddp"},
        "checkpoint": {},
    }
    return TRAINING_CONFIG.validate_python(document)


def measure(case: Case, found: Any) -> None:
    """Make two steps, and put the growth of resident memory in bytes into ``found``."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**16)
    config, cpu = config_of(case), torch.device("cpu")
    task = build_task(config)
    strategy = build_strategy(config.strategy, Workers(0, 1, cpu), Precision("fp32", cpu))
    strategy.parallelize(task)
    optimizer = build_optimizer(strategy.parameters.values(), config.train)
    strategy.backward([task.train_samples.batch([0])], 1.0)  # loads kernels
    strategy.zero_grad()
    batch = task.train_samples.batch(range(case.rows))
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


def compared(case: Case) -> dict[str, float]:
    """Measured and computed memory of a case in MiB."""
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    process = context.Process(target=measure, args=(case, found))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise click.ClickException(f"the measurement of {case} ended with status {process.exitcode}")
    need = memory_need(config_of(case), 1, None, use_gpu=False)
    return {"measured": found.get() / MIB, "computed": (need.total - need.weights) / MIB}


def table(found: dict[Case, dict[str, float]]) -> str:
    """The comparison in Markdown."""
    headers = ["trained", "recomputed activations", "samples", "tokens", "measured", "computed", "ratio"]
    rows = [
        [
            case.trained,
            "yes" if case.checkpointing else "no",
            str(case.rows),
            str(case.length),
            f"{each['measured']:.0f} MiB",
            f"{each['computed']:.0f} MiB",
            f"{each['computed'] / each['measured']:.2f}",
        ]
        for case, each in found.items()
    ]
    return markdown_table(headers, rows, left=2)


@click.command()
@click.option("--cases", type=int, default=len(CASES), show_default=True, help="Number of cases.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE.json", help="Write all numbers.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(cases: int, json_file: Path | None, write: Path | None) -> None:
    """Compare computed with measured memory."""
    warnings.simplefilter("ignore")  # of libraries
    torch.set_num_threads(1)
    here = machine(("torch", "transformers", "peft", "bitsandbytes"))
    found: dict[Case, dict[str, float]] = {}
    for case in CASES[:cases]:
        found[case] = compared(case)
        click.echo(f"{' '.join(map(str, case))}: {found[case]}", err=True)
    click.echo(f"{table(found)}\n\n{here}")
    if json_file is not None:
        numbers = {" ".join(map(str, case)): each for case, each in found.items()}
        json_file.write_text(json.dumps({"machine": here, "numbers": numbers}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, {"memory": f"{table(found)}\n\n{here}"})


if __name__ == "__main__":
    main()
