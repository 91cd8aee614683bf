"""Costs of large sweeps: up to 1,000 workers and 10,000 trials, without training.

    python benchmarks/scale.py --write docs/performance.md

takes about an hour on two cores. The processes of trials are stood in for (see ``scaled/stand_ins.py``); CPU seconds
are those of the driver, and hardly depend on what else runs on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from overhead.summary import machine
from results_document import markdown_table, write_between_marks
from scaled.sweep import RESULT, TOTAL

SIZES = "10x100,100x1000,1000x10000"
FIGURE = "images/scale.png"
ENDS_WITHIN_S = 120
FEWEST_GAPS = 50
"""Fewest times from a freed place to its next trial that are summed up."""
BUNDLES = 12
"""Points of a curve in the figure."""

Result = dict[str, Any]


@click.command()
@click.option("--sizes", default=SIZES, show_default=True, help="WORKERSxTRIALS of each sweep.")
@click.option("--at-most-s", default=7200, show_default=True, help="Seconds after which a sweep is ended.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Add the numbers to it.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(sizes: str, at_most_s: int, json_file: Path | None, write: Path | None) -> None:
    """Measure how the costs of a sweep grow."""
    kept: dict[str, Any] = json.loads(json_file.read_text()) if json_file and json_file.exists() else {}
    results: dict[str, Result] = kept.get("results", {})
    here = kept.get("machine") or machine()
    for size in filter(None, sizes.split(",")):
        workers, _, trials = size.partition("x")
        results[size] = _measure(int(workers), int(trials), at_most_s)
        click.echo(" | ".join(_row(results[size])))
        if json_file:
            json_file.write_text(json.dumps({"machine": here, "results": results}))
    if write:
        write_between_marks(write, {"scale": _text(here, list(results.values()))})
        _draw(list(results.values()), write.parent / FIGURE)


def _measure(workers: int, trials: int, at_most_s: int) -> Result:
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(here), *filter(None, sys.path)])}
        command = [sys.executable, "-m", "scaled.sweep", str(workers), str(trials), folder]
        errors = Path(folder) / "errors.log"
        with errors.open("w") as log:
            sweep = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
            in_time = True
            try:
                sweep.wait(at_most_s)
            except subprocess.TimeoutExpired:
                in_time = False
                sweep.send_signal(signal.SIGINT)  # it ends its trials, and writes what it has measured
                with contextlib.suppress(subprocess.TimeoutExpired):
                    sweep.wait(ENDS_WITHIN_S)
            if sweep.poll() is None:
                sweep.kill()
        file = Path(folder) / RESULT
        if not file.exists() or (in_time and sweep.returncode):
            status = f"{workers} workers, {trials} trials failed (exit status {sweep.returncode})"
            raise click.ClickException(f"{status}:\n{errors.read_text()[-3000:]}")
        result: Result = json.loads(file.read_text())
        if failed := result.get("counts", {}).get("failed"):
            events = (Path(folder) / "events.log").read_text()[-1000:]
            raise click.ClickException(f"{workers} workers, {trials} trials: {failed} failed:\n{events}")
        return result


HEADERS = (
    *("workers", "trials", "driver CPU per trial", "per report", "main thread", "driver memory"),
    *("MLflow", "study", "freed place to next trial, median", "90 %"),
)


def _row(result: Result) -> list[str]:
    first, last = result["samples"][0], result["samples"][-1]
    cpu = last["cpu_s"][TOTAL] - first["cpu_s"][TOTAL]
    main = max(each["cpu_s"]["MainThread"] for each in result["samples"]) - first["cpu_s"]["MainThread"]
    gaps = _gaps(result)
    tenths = [f"{seconds:.2f} s" for seconds in statistics.quantiles(gaps, n=10)] if gaps else ["too few"] * 9
    return [
        f"{result['workers']:,}",
        f"{result['trials']:,}",
        f"{1e3 * cpu / result['trials']:.0f} ms",
        f"{1e3 * cpu / last['reports']:.1f} ms",
        f"{main / cpu:.0%}",
        f"{last['memory_mib']:.0f} MiB",
        f"{1024 * last['mlflow_mib'] / result['trials']:.1f} KiB a trial",
        f"{1024 * last['study_mib'] / result['trials']:.1f} KiB a trial",
        tenths[4],
        tenths[8],
    ]


def _text(here: str, results: list[Result]) -> str:
    parts = sorted({part for result in results for part in result["stacks"]["MainThread"]} - {"waits"})
    shares = [_shares(result) for result in results]
    parts.sort(key=lambda part: -shares[-1].get(part, 0.0))
    table = markdown_table(HEADERS, [_row(result) for result in results], left=0)
    busy = markdown_table(
        ["main thread", *map(_name, results)],
        [[part, *(f"{each.get(part, 0.0):.0%}" for each in shares)] for part in parts],
    )
    return f"{here}.\n\n{table}\n\n{busy}\n\n![Growth of costs with trials]({FIGURE})"


def _gaps(result: Result) -> list[float]:
    """Seconds from each freed place to its next trial; none if they are too few."""
    gaps: list[float] = result["gaps_s"]
    return gaps if len(gaps) >= FEWEST_GAPS else []


def _name(result: Result) -> str:
    return f"{result['workers']:,} workers, {result['trials']:,} trials"


def _shares(result: Result) -> dict[str, float]:
    """Part of the main thread's time, without waiting, by part of the driver."""
    looks = {part: count for part, count in result["stacks"]["MainThread"].items() if part != "waits"}
    return {part: count / sum(looks.values()) for part, count in looks.items()}


def _bundles(result: Result) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of samples between which about as many trials have ended each time."""
    samples = result["samples"]
    every = max(1, samples[-1]["ended"] // BUNDLES)
    chosen = [samples[0]]
    for sample in samples:
        if sample["ended"] - chosen[-1]["ended"] >= every:
            chosen.append(sample)
    return list(pairwise(chosen))


def _draw(results: list[Result], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, ((cpu, memory), (stores, gaps)) = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    for result in results:
        name = _name(result)
        pairs, samples = _bundles(result), result["samples"]
        spent = [1e3 * (b["cpu_s"][TOTAL] - a["cpu_s"][TOTAL]) / (b["ended"] - a["ended"]) for a, b in pairs]
        cpu.plot([b["ended"] for _, b in pairs], spent, ".-", label=name)
        memory.plot([each["ended"] for each in samples], [each["memory_mib"] for each in samples], label=name)
    largest = results[-1]["samples"]
    for key, name in (("mlflow_mib", "MLflow"), ("study_mib", "Optuna study")):
        stores.plot([each["ended"] for each in largest], [each[key] for each in largest], label=name)
    gaps.boxplot(
        [_gaps(result) for result in results],
        tick_labels=[
            _name(result).replace(", ", "\n") + ("" if _gaps(result) else "\n(too few)") for result in results
        ],
        showfliers=False,
    )
    cpu.set(xscale="log", xlabel="trials that have ended", ylabel="ms", ylim=(0, None), title="Driver CPU of a trial")
    memory.set(xscale="log", xlabel="trials that have ended", ylabel="MiB", ylim=(0, None), title="Driver memory")
    stores.set(xlabel="trials that have ended", ylabel="MiB", ylim=(0, None), title="Files of the largest sweep")
    gaps.set(ylabel="seconds", yscale="log", title="From a freed place to its next trial")
    for axes in (cpu, memory, stores, gaps):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    for axes in (cpu, memory, stores):
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
