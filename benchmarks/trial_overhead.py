"""Overhead of a trial: stock Ray Tune, Sweeps in both isolations, and the floor, side by side.

    python benchmarks/trial_overhead.py --scaling --write docs/performance.md

takes about a quarter of an hour on two cores, half of it for stock Ray. ``--quick`` shows in three minutes that
everything runs. Each arm has its own processes; they run one after another, one trial at a time with two workers.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
from overhead.arms import ARMS, ORDER, Measured, measure
from overhead.figures import draw_scaling
from overhead.summary import Counts, document, machine, table, written
from overhead.workload import Training
from results_document import write_between_marks
from rich.console import Console

SCALING_TRIALS = 200
console = Console()


@click.command()
@click.option("--arms", default=",".join(ORDER), show_default=True, help="Arms; floor and stock need warm.")
@click.option("--trials", default=24, show_default=True, type=click.IntRange(2), help="Digits trials of an arm.")
@click.option("--trivial-trials", default=20, show_default=True, type=click.IntRange(2), help="Trivial trials.")
@click.option("--process-trials", default=8, show_default=True, type=click.IntRange(2), help="Most trials of process.")
@click.option("--stock-trials", default=8, show_default=True, type=click.IntRange(2), help="Most digits trials.")
@click.option("--stock-trivial", default=4, show_default=True, type=click.IntRange(2), help="Most trivial trials.")
@click.option("--quick", is_flag=True, help="Few trials, to see that it runs.")
@click.option("--scaling", is_flag=True, help=f"Also {SCALING_TRIALS} trivial trials in one warm sweep.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the numbers to it.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(
    arms: str,
    trials: int,
    trivial_trials: int,
    process_trials: int,
    stock_trials: int,
    stock_trivial: int,
    quick: bool,
    scaling: bool,
    json_file: Path | None,
    write: Path | None,
) -> None:
    """Measure the overhead of a trial."""
    chosen = [arm for arm in ORDER if arm in arms.split(",")]
    if unknown := set(arms.split(",")) - set(ARMS):
        raise click.UsageError(f"--arms: there is no {', '.join(sorted(unknown))}; there are {', '.join(ARMS)}")
    if "warm" not in chosen:
        raise click.UsageError("--arms: warm is missing; the other arms repeat its trials")
    counts: Counts = {
        "trivial": {"warm": trivial_trials, "process": process_trials, "stock": stock_trivial},
        "digits": {"warm": trials, "process": process_trials, "stock": stock_trials},
    }
    if quick:
        counts = {workload: {arm: min(3, count) for arm, count in each.items()} for workload, each in counts.items()}
    console.print(machine(), highlight=False)
    results: dict[str, dict[str, Measured]] = {}
    for workload, each in counts.items():
        results[workload] = {}
        trainings: list[Training] = []
        for arm in chosen:
            count = min(each.get(arm, each["warm"]), each["warm"])
            measured = results[workload][arm] = _run(arm, workload, count, trainings)
            trainings = trainings or measured.record.trainings
        console.print(table(workload, results[workload]))
    flat = _run("warm", "trivial", 2 * 20 if quick else SCALING_TRIALS, []) if scaling else None
    numbers = document(results, flat)
    if json_file is not None:
        json_file.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
    if write is not None:
        write_between_marks(write, written(numbers))
        if flat is not None:
            draw_scaling(flat, write.parent / "images" / "trial-overhead.png")
    if flat is not None:
        console.print_json(json.dumps(numbers["scaling"]))


def _run(arm: str, workload: str, trials: int, trainings: list[Training]) -> Measured:
    console.print(f"{workload}, {trials} trials, {arm}: {ARMS[arm]}", highlight=False)
    measured = measure(arm, workload, trials, trainings)
    console.print(
        f"  first report after {measured.first_s:.1f} s, then {measured.per_trial_s():.3f} s a trial; "
        f"{measured.wall_s:.0f} s in all",
        highlight=False,
    )
    return measured


if __name__ == "__main__":
    main()
