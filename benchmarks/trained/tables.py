"""Tables of the numbers of trainings. Needs no Ray."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch

from trained.blocks import Arm, compare
from trained.workloads import Workload

NAMES = {
    "ours": "`sweeps_train`",
    "plain": "written by hand",
    "huggingface": "Hugging Face `Trainer`",
}
Own = Callable[[dict[str, Any]], tuple[str, str]]


def machine(libraries: Sequence[str] = ("torch", "transformers", "accelerate")) -> str:
    """Description of the machine, the libraries and the load."""
    device = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    return (
        f"{device}{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {versions}; "
        f"{time.strftime('%Y-%m-%d')}; load before {os.getloadavg()[0]:.1f}"
    )


def numbers(arms: dict[str, Arm], per_block: float) -> dict[str, Any]:
    """All numbers of one workload, for JSON, by arm; all workers process ``per_block`` samples or tokens in a block."""
    found: dict[str, Any] = {}
    for name, arm in arms.items():
        found[name] = asdict(arm) | {
            "per_second": per_block / statistics.median(arm.blocks),
            "per_cpu_second": per_block / statistics.median(arm.cpu),
        }
        if name != "ours":
            found[name]["ours is faster"] = dict(
                zip(("times", "lower quartile", "upper quartile"), compare(arms["ours"], arm), strict=True)
            )
    return found


def rows(workload: str, measured: dict[str, Any], own: Own) -> list[list[str]]:
    """Rows of a workload's table, one for each arm, from its ``numbers``. ``own`` are texts of two columns of this
    table alone, for an arm."""
    lines = []
    for name, arm in measured.items():
        ours = arm.get("ours is faster")
        lines.append(
            [
                workload if name == "ours" else "",
                NAMES[name],
                f"{arm['per_second']:,.0f}",
                "**{:.3f}** ({:.3f} to {:.3f})".format(*ours.values()) if ours else "",
                *own(arm),
                f"{statistics.median(arm['starts']):.1f} s",
                f"{arm['last'].get('train/loss', math.nan):.4g}",
            ]
        )
    return lines


def headers(*own: str) -> list[str]:
    """Heads of a workload's table, with columns of its own."""
    return ["", "loop", "per second", "speedup of `sweeps_train`", *own, "start", "loss"]


def described(workloads: Mapping[str, Workload], measured: Iterable[str]) -> str:
    """A list of the workloads that were measured: those with which the titles ``measured`` begin."""
    titles = list(measured)
    some = [name for name in workloads if any(title.startswith(name) for title in titles)]
    return "\n".join(f"- {name}: {workloads[name].what}" for name in some)
