"""Time that tracking adds to a training step, and the number of points a second that it sustains.

    python benchmarks/tracking.py --write docs/performance.md

takes about nine minutes on two idle cores. Each arm has its own process, and each store is new.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from overhead.summary import machine
from results_document import markdown_table, write_between_marks
from tracked.arms import METRICS, STEP_S
from tracked.stores import STORES, opened

ARMS = ("none", "ours", "stock", "direct")
NAMES = {
    "none": "no tracking",
    "ours": "Sweeps",
    "stock": "Ray's `MLflowLoggerCallback`",
    "direct": "`mlflow.log_metrics` in the training",
}
FIGURE = "images/tracking.png"

Numbers = dict[str, dict[str, dict[str, float]]]
"""Measured values by store, arm and name."""


@click.command()
@click.option("--stores", default=",".join(STORES), show_default=True)
@click.option("--arms", default=",".join((*ARMS, "sustained")), show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Add the numbers to this file.")
@click.option("--write", type=click.Path(path_type=Path, exists=True), metavar="FILE.md", help="Update its numbers.")
def main(stores: str, arms: str, json_file: Path | None, write: Path | None) -> None:
    kept: dict[str, Any] = json.loads(json_file.read_text()) if json_file and json_file.exists() else {}
    numbers: Numbers = kept.get("numbers", {})
    here = kept.get("machine") or machine()
    for store in filter(None, stores.split(",")):
        for arm in filter(None, arms.split(",")):
            with tempfile.TemporaryDirectory() as folder, opened(store, Path(folder) / "store") as uri:
                numbers.setdefault(store, {})[arm] = _measure(arm, uri, Path(folder))
            print(store, arm, numbers[store][arm], flush=True)
            if json_file:
                json_file.write_text(json.dumps({"machine": here, "numbers": numbers}, indent=1))
    if write:
        write_between_marks(write, _tables(here, numbers))
        _draw(numbers, write.parent / FIGURE)


def _measure(arm: str, uri: str, folder: Path) -> dict[str, float]:
    here = Path(__file__).resolve().parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(here), *sys.path]),
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tracked.arms", arm, uri, str(folder)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("MEASURED")]
    if not lines:
        raise click.ClickException(f"{arm} at {uri} failed:\n{done.stderr[-3000:]}")
    measured: dict[str, float] = json.loads(lines[0].removeprefix("MEASURED"))
    return measured


def _tables(here: str, numbers: Numbers) -> dict[str, str]:
    """Tables of the numbers in Markdown, by the marks between which a document has them."""
    headers = ["", *(STORES[store] for store in numbers)]
    added = [[NAMES[arm], *(_added(arms[arm]) if arm in arms else "" for arms in numbers.values())] for arm in ARMS]
    rates = [
        [
            f"{name}, points a second",
            *(f"{arms['sustained'][key]:,.0f}" if "sustained" in arms else "" for arms in numbers.values()),
        ]
        for key, name in (("journal", "into the journal"), ("mlflow", "through to MLflow"))
    ]
    return {
        "tracking machine": here,
        "added": markdown_table(headers, added),
        "sustained": markdown_table(headers, rates),
    }


def _added(measured: dict[str, float]) -> str:
    share = measured["added_ms"] / (1e3 * STEP_S)
    return f"{measured['added_ms']:.3f} ms ({share:.2%}), median {measured['median_ms']:.3f}"


def _draw(numbers: Numbers, file: Path) -> None:
    """Draw the added time of a step by store and arm, on a logarithmic scale, with a line at one percent."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    arms = [arm for arm in ARMS if arm != "none"]
    for place, arm in enumerate(arms):
        at = [store + 0.26 * (place - 1) for store in range(len(numbers))]
        values = [measured[arm]["added_ms"] for measured in numbers.values()]
        bars = axes.bar(at, values, 0.24, label=NAMES[arm].replace("`", ""))
        axes.bar_label(bars, [f"{value:.2f}" for value in values], padding=2, fontsize=8)
    axes.axhline(10 * STEP_S, color="black", linewidth=0.8, linestyle="--")
    axes.text(len(numbers) - 0.56, 10 * STEP_S * 1.15, "1 % of\na step", fontsize=8)
    axes.set_xlim(-0.5, len(numbers) - 0.3)
    axes.set_yscale("log")
    axes.set(ylabel="added ms a step", title=f"Time that tracking {METRICS} metrics adds to a step of 10 ms")
    axes.set_xticks(range(len(numbers)), [STORES[store] for store in numbers])
    axes.set_ylim(top=axes.get_ylim()[1] * 3)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
