"""Summaries of measured arms: as JSON, as tables in the terminal and in Markdown."""

from __future__ import annotations

import os
import platform
import statistics
import time
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import psutil
from results_document import markdown_table
from rich.table import Table

from overhead.arms import ARMS, Measured

Counts = dict[str, dict[str, int]]
"""Largest number of trials by workload and arm."""
WINDOW = 20
FIGURE = "![Seconds of each trial and memory of all processes over the sweep](images/trial-overhead.png)"


def machine() -> str:
    """Description of the machine, the libraries and the load."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("ray", "torch", "optuna", "mlflow"))
    others = sum(process.info["name"] == "raylet" for process in psutil.process_iter(["name"]))
    return (
        f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.machine()}, "
        f"Python {platform.python_version()}, {libraries}; {time.strftime('%Y-%m-%d')}; load before "
        f"{os.getloadavg()[0]:.1f}, {others} other Ray nodes on the machine"
    )


def document(results: dict[str, dict[str, Measured]], scaling: Measured | None) -> dict[str, Any]:
    """All numbers, for JSON."""
    return {
        "machine": machine(),
        "order": [arm for arms in list(results.values())[:1] for arm in arms],
        **{workload: _workload(arms) for workload, arms in results.items()},
        "scaling": _windows(scaling) if scaling is not None else None,
    }


def _workload(arms: dict[str, Measured]) -> dict[str, Any]:
    numbers = {arm: _numbers(measured, arms.get("floor")) for arm, measured in arms.items()}
    ratios: dict[str, float] = {}
    if "floor" in arms:
        ratios["warm time / floor time"] = arms["warm"].per_trial_s() / arms["floor"].per_trial_s()
        if "stock" in arms:
            # Each over the trials that it ran, beyond the floor's time for the same trials.
            ratios["stock overhead / warm overhead"] = numbers["stock"]["overhead_s"] / numbers["warm"]["overhead_s"]
    if "process" in arms and "stock" in arms:
        common = min(arms["process"].trials, arms["stock"].trials)
        ratios["stock time / process time"] = arms["stock"].per_trial_s(common) / arms["process"].per_trial_s(common)
    return {"arms": numbers, "ratios": ratios}


def _numbers(measured: Measured, floor: Measured | None) -> dict[str, Any]:
    stalls = measured.record.stalls
    return {
        "trials": measured.trials,
        "first_s": measured.first_s,
        "per_trial_s": measured.per_trial_s(),
        "overhead_s": _overhead(measured, floor, measured.trials) if floor is not None else None,
        "stall_median_s": statistics.median(stalls) if stalls else None,
        "stall_max_s": max(stalls) if stalls else None,
        "peak_mib": measured.peak_mib,
        "goodput": measured.goodput,
        "wall_s": measured.wall_s,
    }


def _overhead(measured: Measured, floor: Measured, trials: int) -> float:
    """Seconds per trial beyond those of the floor, over the same trials."""
    return measured.per_trial_s(trials) - floor.per_trial_s(trials)


def _windows(measured: Measured) -> list[dict[str, float]]:
    """Seconds per trial and memory, in windows of ``WINDOW`` trials after the first trial."""
    ends = [trial.reports[-1] for trial in measured.record.trials][::WINDOW]
    last = measured.record.trials[-1].reports[-1]
    windows = []
    for index, (begin, end) in enumerate(pairwise([*ends, last])):
        trials = min(WINDOW, measured.trials - 1 - index * WINDOW)
        inside = [mib for at, mib in measured.memory if begin <= at <= end]
        windows.append(
            {
                "first": index * WINDOW + 1,
                "trials": trials,
                "per_trial_s": (end - begin) / trials,
                "median_mib": statistics.median(inside),
            }
        )
    return windows


def table(workload: str, arms: dict[str, Measured]) -> Table:
    """Table for the terminal."""
    numbers = _workload(arms)
    shown = Table(title=f"{workload} trials", caption=_ratios(numbers["ratios"]))
    for name in HEADERS:
        shown.add_column(name, justify="left" if name == "arm" else "right")
    for row in _rows(numbers):
        shown.add_row(*row)
    return shown


HEADERS = (
    "arm",
    "trials",
    "first report",
    "time per trial",
    "overhead per trial",
    "stall per report",
    "peak memory",
    "goodput",
)


def _rows(numbers: dict[str, Any]) -> list[list[str]]:
    return [
        [
            arm,
            str(each["trials"]),
            f"{each['first_s']:.1f} s",
            f"{each['per_trial_s']:.3f} s",
            "" if arm == "floor" or each["overhead_s"] is None else f"{each['overhead_s']:.3f} s",
            "" if each["stall_median_s"] is None else f"{each['stall_median_s'] * 1000:.2f} ms",
            f"{each['peak_mib'] / 1024:.2f} GiB",
            f"{each['goodput']:.0%}",
        ]
        for arm in ARMS
        if (each := numbers["arms"].get(arm)) is not None
    ]


def _ratios(ratios: dict[str, float]) -> str:
    return "; ".join(f"{name}: {ratio:.3g}" for name, ratio in ratios.items())


def written(numbers: dict[str, Any]) -> dict[str, str]:
    """Tables of the numbers in Markdown, by the marks between which a document has them."""
    order = f"Arms ran in the order {', '.join(numbers['order'])}, each in its own processes."
    contents = {"machine": f"{numbers['machine']}. {order}"}
    for workload in ("trivial", "digits"):
        ratios = [f"- {name}: **{ratio:.3g}**" for name, ratio in numbers[workload]["ratios"].items()]
        contents[workload] = "\n".join([markdown_table(HEADERS, _rows(numbers[workload])), "", *ratios])
    if numbers["scaling"] is not None:
        windows = [
            [
                f"{each['first'] + 1}-{each['first'] + each['trials']}",
                f"{each['per_trial_s']:.3f} s",
                f"{each['median_mib']:.0f} MiB",
            ]
            for each in numbers["scaling"]
        ]
        contents["scaling"] = "\n".join([markdown_table(("trials", "time per trial", "memory"), windows), "", FIGURE])
    return contents
