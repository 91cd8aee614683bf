"""LoRA of models of 0.5 to 1.5 billion parameters in bf16 on one GPU: our loop beside Hugging Face's ``Trainer``.

    python benchmarks/gpu_lora.py --json lora.json

takes about a quarter of an hour and 80 GB of the GPU. Weights are random and made here, the text is the docstrings of
Python's standard library: no network, no Ray and no MLflow, only this checkout (``PYTHONPATH=src``) with torch,
transformers, datasets, peft, accelerate, pydantic, psutil, filelock and click. Both train the same adapters (peft's) on
as many packed tokens in a step, with the same optimizer, and take turns as in ``training.py``. ``--tiny`` shows on CPUs
that it runs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import torch
from results_document import markdown_table, write_between_marks
from trained.blocks import measure
from trained.tables import described, headers, machine, numbers, rows
from trained.workloads import GPU, TINY, Workload

HEADERS = headers("tokens", "FLOP utilisation", "GPU memory")
UTILIZATION, SPEED = "train/flop_utilization", "train/tokens_per_second"


@click.command()
@click.option("--workloads", default=",".join(GPU), show_default=True)
@click.option("--arms", default="ours,compiled,huggingface", show_default=True, help="Arms, with ours first.")
@click.option("--blocks", default=12, show_default=True, type=click.IntRange(2), help="Measured blocks of each arm.")
@click.option("--starts", default=1, show_default=True, type=click.IntRange(1), help="Starts of each arm.")
@click.option("--batch", type=click.IntRange(1), help="Sequences in a step; default: 8.")
@click.option("--tiny", is_flag=True, help="A model of some thousand parameters on CPUs, to see that it runs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the numbers to this file.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(
    workloads: str,
    arms: str,
    blocks: int,
    starts: int,
    batch: int | None,
    tiny: bool,
    json_file: Path | None,
    write: Path | None,
) -> None:
    """Measure LoRA on a GPU."""
    if not tiny and not torch.cuda.is_available():
        raise click.UsageError("there is no GPU here; --tiny shows on CPUs that it runs")
    known = TINY if tiny else GPU
    here = machine(("torch", "transformers", "peft", "accelerate"))
    found: dict[str, dict[str, Any]] = {}
    lines = []
    for name in known if tiny else workloads.split(","):
        if name not in known:
            raise click.UsageError(f"--workloads: there is no {name!r}; there are {', '.join(known)}")
        workload = replace(known[name], per_worker=batch or known[name].per_worker)
        found[name] = _measured(workload, arms.split(","), 2 if tiny else blocks, starts, tiny=tiny)
        new = table_rows(name, found[name])
        print(markdown_table(HEADERS, new, left=2), flush=True)
        lines += new
        if json_file is not None:
            json_file.write_text(json.dumps({"machine": here, "numbers": found}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        lora = f"{markdown_table(HEADERS, lines, left=2)}\n\n{described(known, found)}"
        write_between_marks(write, {"GPU": here, "LoRA": lora})


def _measured(workload: Workload, arms: list[str], blocks: int, starts: int, *, tiny: bool) -> dict[str, Any]:
    if tiny:  # the peak performance of CPUs is unknown
        train = workload.config["train"] | {"peak_tflops": 0.1}
        workload = replace(workload, config={**workload.config, "train": train})
    measured = measure(workload, 1, arms, blocks=blocks, starts=starts)
    found = numbers(measured, workload.block * workload.units)
    # All arms compute the same. Our loop counts the FLOPs, from which the utilisation of the others follows by speed.
    last = measured["ours"].last
    per_speed = last[UTILIZATION] / last[SPEED] if UTILIZATION in last else None
    for arm in found.values():
        arm["flop_utilization"] = None if per_speed is None else per_speed * arm["per_second"]
    return found


def table_rows(workload: str, measured: dict[str, Any]) -> list[list[str]]:
    """Rows of a table with ``HEADERS``, one for each arm of a workload."""

    def own(arm: dict[str, Any]) -> tuple[str, str]:
        utilization = arm["flop_utilization"]
        used = f"{utilization:.1%}" if utilization is not None else "unknown"
        return used, f"{arm['peak_gpu_mib'] / 1024:.1f} GiB"

    return rows(workload, measured, own)


if __name__ == "__main__":
    main()
