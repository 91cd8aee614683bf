"""Speed, memory and start-up of our loop on CPUs, beside a loop written by hand and Hugging Face's ``Trainer``.

    python benchmarks/training.py --write benchmarks/measurements.md

takes about a quarter of an hour on two idle cores. All three train the same model on the same data with the same split,
without Ray. After all have started, they run in turns of a second or two, in the order ABCCBA. ``--quick`` shows in
some minutes that everything runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table, write_between_marks
from trained.blocks import measure
from trained.tables import described, headers, machine, numbers, rows
from trained.workloads import CPU

ARMS = ("ours", "plain", "huggingface")
HEADERS = headers("per CPU second", "memory")


@click.command()
@click.option("--workloads", default=",".join(CPU), show_default=True)
@click.option("--workers", default="1,2", show_default=True, help="Numbers of workers.")
@click.option("--blocks", default=20, show_default=True, type=click.IntRange(2), help="Measured blocks of each arm.")
@click.option("--starts", default=3, show_default=True, type=click.IntRange(1), help="Starts of each arm.")
@click.option("--quick", is_flag=True, help="Few blocks and one start, to see that it runs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the numbers to this file.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(
    workloads: str, workers: str, blocks: int, starts: int, quick: bool, json_file: Path | None, write: Path | None
) -> None:
    """Measure the training loop."""
    here = machine()
    if quick:
        blocks, starts = 2, 1
    found: dict[str, dict[str, Any]] = {}
    lines = []
    for name in workloads.split(","):
        if name not in CPU:
            raise click.UsageError(f"--workloads: there is no {name!r}; there are {', '.join(CPU)}")
        for number in map(int, workers.split(",")):
            workload = CPU[name]
            arms = measure(workload, number, ARMS, blocks=blocks, starts=starts)
            title = f"{name}, {number} worker{'s' if number > 1 else ''}"
            found[title] = numbers(arms, workload.block * workload.units * number)
            new = rows(title, found[title], _own)
            print(markdown_table(HEADERS, new, left=2), flush=True)
            lines += new
            if json_file is not None:
                json_file.write_text(json.dumps({"machine": here, "numbers": found}, indent=1) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(
            write, {"machine": here, "training": f"{markdown_table(HEADERS, lines, left=2)}\n\n{described(CPU, found)}"}
        )


def _own(arm: dict[str, Any]) -> tuple[str, str]:
    return f"{arm['per_cpu_second']:,.0f}", f"{arm['peak_gpu_mib'] or arm['peak_mib']:,.0f} MiB"


if __name__ == "__main__":
    main()
