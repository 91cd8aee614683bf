"""The numbers of trainings beside each other, as documents show them. Needs no Ray."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from trained.blocks import Arm, compare
from trained.workloads import Workload

NAMES = {
    "ours": "`sweeps_train`",
    "compiled": "the same with `train.compile=true`",
    "plain": "written by hand",
    "huggingface": "Hugging Face `Trainer`",
}


def machine(libraries: Sequence[str] = ("torch", "transformers", "accelerate")) -> str:
    """Where, with what, and under which load it is measured."""
    device = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    versions = ", ".join(f"{name} {version(name)}" for name in libraries)
    return (
        f"{device}{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {versions}; "
        f"{time.strftime('%Y-%m-%d')}; load before {os.getloadavg()[0]:.1f}"
    )


def numbers(arms: dict[str, Arm], per_block: float) -> dict[str, Any]:
    """Everything of one workload, for JSON.

    Args:
        arms: What was measured.
        per_block: Samples, or tokens, that go through all workers in a block.
    """
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


def rows(workload: str, measured: dict[str, Any]) -> list[list[str]]:
    """Of a table: one for each arm."""
    lines = []
    for name, arm in measured.items():
        ours = arm.get("ours is faster")
        faster = "**{:.3f}** ({:.3f} to {:.3f})".format(*ours.values()) if ours else ""
        memory = f"{arm['peak_gpu_mib'] or arm['peak_mib']:,.0f} MiB"
        lines.append(
            [
                workload if name == "ours" else "",
                NAMES[name],
                f"{arm['per_second']:,.0f}",
                faster,
                f"{arm['per_cpu_second']:,.0f}",
                memory,
                f"{statistics.median(arm['starts']):.1f} s",
                f"{arm['last'].get('train/loss', math.nan):.4g}",
            ]
        )
    return lines


HEADERS = ["", "loop", "a second", "ours is faster, times", "a second of processors", "memory", "start", "loss"]


def markdown(headers: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rules = ["---", "---", *["---:"] * (len(headers) - 2)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [headers, rules, *lines])


def described(workloads: Mapping[str, Workload], measured: Iterable[str]) -> str:
    """A list of what was measured.

    Args:
        workloads: By their names.
        measured: Titles, which begin with them.
    """
    titles = list(measured)
    some = [name for name in workloads if any(title.startswith(name) for title in titles)]
    return "\n".join(f"- {name}: {workloads[name].what}" for name in some)


def write_between_marks(file: Path, contents: dict[str, str]) -> None:
    """Replaces what stands between the marks of a Markdown file."""
    text = file.read_text(encoding="utf-8")
    for name, content in contents.items():
        begin, end = f"<!-- measured: {name} -->", "<!-- end of measured -->"
        start = text.index(begin) + len(begin)
        text = f"{text[:start]}\n{content}\n{text[text.index(end, start) :]}"
    file.write_text(text, encoding="utf-8")
