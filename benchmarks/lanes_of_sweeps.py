"""Trials an hour of whole sweeps whose trials share their workers, on CPUs.

    python benchmarks/lanes_of_sweeps.py --lanes 1,2,4 --trials 8 --steps 40

runs `conf=llm_lora` with each `scaling.trials_per_group`, all with the same trials, and prints how long training took
from the first worker's first step to the last report, and whether every reported loss is the same. The start of Ray and
of the workers is left out; evaluations, checkpoints and the search are not.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from results_document import markdown_table


def sweep(folder: Path, lanes: int, trials: int, steps: int, more: tuple[str, ...]) -> list[dict[str, Any]]:
    """Run a sweep, and return what its workers have logged, in order of time."""
    tokens = (
        *("conf=llm_lora", f"scaling.trials_per_group={lanes}", f"search.num_trials={trials}", "search=random"),
        *(f"train.max_steps={steps}", f"train.eval_every={steps // 2}", "train.log_every=1", "tracking.report=false"),
        *("search.max_retries=0", "preflight.timeout_s=0"),
    )
    command = [sys.executable, "-m", "sweeps", "run", *tokens, *more]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr)
    logs = sorted(folder.glob("outputs/*/trials/*/reports.jsonl"))
    lines = [{**json.loads(line), "trial": log.parent.name} for log in logs for line in log.open(encoding="utf-8")]
    return sorted(lines, key=lambda line: float(line["timestamp_ms"]))


def losses(lines: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """Evaluated losses by trial and step."""
    return {(line["trial"], line["step"]): line["metrics"]["eval/loss"] for line in lines if line["kind"] == "Report"}


@click.command(help=__doc__)
@click.option("--lanes", default="1,2,4", show_default=True)
@click.option("--trials", default=8, show_default=True)
@click.option("--steps", default=40, show_default=True)
@click.argument("more", nargs=-1)
def main(lanes: str, trials: int, steps: int, more: tuple[str, ...]) -> None:
    rows, alone = [], None
    for number in map(int, lanes.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            lines = sweep(Path(folder), number, trials, steps, more)
        seconds = (lines[-1]["timestamp_ms"] - lines[0]["timestamp_ms"]) / 1000
        found = losses(lines)
        alone = alone or (seconds, found)
        furthest = max(abs(value - alone[1][key]) / abs(alone[1][key]) for key, value in found.items())
        rows.append(
            [
                str(number),
                f"{seconds:.1f}",
                f"{3600 * trials / seconds:.0f}",
                f"{alone[0] / seconds:.2f}",
                f"{furthest:.1e}",
            ]
        )
    head = ["trials at a time", "seconds", "trials an hour", "times the first", "largest relative difference of a loss"]
    click.echo(markdown_table(head, rows))


if __name__ == "__main__":
    main()
