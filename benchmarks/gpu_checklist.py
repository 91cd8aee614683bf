"""Report of what works and how fast on this machine's GPUs: the GPU tests, and LoRA beside Hugging Face's ``Trainer``.

    make test-gpu                                # or: python benchmarks/gpu_checklist.py

takes an estimated half an hour on one GPU with 80 GB, and writes ``gpu_checklist.md``: a report to send to the
developers, without names of users, hosts or paths. ``--tiny`` runs all of it in small on CPUs.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import torch
from gpu_lora import HEADERS, table_rows
from results_document import markdown_table
from trained.workloads import GPU

CHECKOUT = Path(__file__).resolve().parent.parent
SPEEDUP, UTILIZATION = 1.1, 0.4
"""Aims of LoRA on a GPU: speed relative to Hugging Face's ``Trainer``, and part of the GPU's peak."""
LONGEST_REASON = 300
LIBRARIES = ("torch", "transformers", "peft", "accelerate", "ray")


@dataclass(frozen=True)
class Outcome:
    """Result of one test."""

    name: str
    result: str
    """passed, failed or skipped."""
    seconds: float
    reason: str
    """First lines of a failure, or the reason for skipping it."""


@click.command()
@click.option("--workloads", default=",".join(GPU), show_default=True, help="Models that are measured.")
@click.option("--tiny", is_flag=True, help="On CPUs, with the tests that also run there and a tiny model.")
@click.option("--report", default="gpu_checklist.md", show_default=True, type=click.Path(path_type=Path))
def main(workloads: str, tiny: bool, report: Path) -> None:
    """Run the GPU tests and the benchmark, and print a report."""
    if not tiny and not torch.accelerator.is_available():
        raise click.UsageError("torch sees no GPU here; --tiny shows on CPUs that this works")
    with tempfile.TemporaryDirectory() as folder:
        tests = _run_tests(Path(folder) / "tests.xml", tiny=tiny)
        measured = _run_benchmark(Path(folder) / "lora.json", workloads, tiny=tiny)
    text = "\n".join(["# Sweeps on this GPU", "", *_machine(), "", *_tests(tests), "", *_measured(measured, tiny=tiny)])
    report.write_text(text + "\n", encoding="utf-8")
    print(f"\n{text}\n\nThis is in {report}; please send it to us, also if all of it passed.")
    sys.exit(0 if measured is not None and not any(each.result == "failed" for each in tests) else 1)


def _run_tests(results: Path, *, tiny: bool) -> list[Outcome]:
    chosen = ["-m", "slow and not gpu", "tests/sweeps_train/test_gpu.py"] if tiny else ["-m", "gpu"]
    command = [sys.executable, "-m", "pytest", *chosen, f"--junitxml={results}", "-o", "junit_family=xunit1"]
    subprocess.run(command, cwd=CHECKOUT, check=False)
    if not results.exists():
        return [Outcome("pytest", "failed", 0.0, "it did not start; its error is above")]
    return [_outcome(each) for each in ElementTree.parse(results).iter("testcase")]


def _outcome(case: ElementTree.Element) -> Outcome:
    result, reason = "passed", ""
    for tag, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (found := case.find(tag)) is not None:
            result, reason = name, " ".join((found.get("message") or "").split())[:LONGEST_REASON]
    name = str(case.get("name")).removeprefix("test_").replace("_", " ")
    return Outcome(name, result, float(case.get("time") or 0), reason.replace(str(CHECKOUT), "."))


def _run_benchmark(numbers: Path, workloads: str, *, tiny: bool) -> dict[str, Any] | None:
    chosen = ["--tiny", "--arms", "ours,huggingface"] if tiny else ["--workloads", workloads]
    command = [sys.executable, "gpu_lora.py", *chosen, "--json", str(numbers)]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT / "src")}
    subprocess.run(command, cwd=CHECKOUT / "benchmarks", env=environment, check=False)
    # One workload after another is written, so that some are there also if a later one has failed.
    if not numbers.exists():
        return None
    found: dict[str, Any] = json.loads(numbers.read_text(encoding="utf-8"))["numbers"]
    return found


def _machine() -> list[str]:
    devices = Counter(_described(index) for index in range(torch.accelerator.device_count()))
    lines = [f"- {number} x {device}" for device, number in devices.items()] or ["- no GPU"]
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else ""
    built = f"ROCm {torch.version.hip}" if torch.version.hip else built
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return [
        *lines,
        f"- {platform.system()} {platform.machine()}, Python {platform.python_version()}, {libraries}",
        *([f"- torch built for {built}"] if built else []),
        f"- Sweeps {version('ray-sweeps')}, {_commit()}",
    ]


def _described(index: int) -> str:
    device = torch.device(torch.accelerator.current_accelerator().type, index)  # type: ignore[union-attr]
    module = torch.get_device_module(device)
    if not hasattr(module, "get_device_properties"):
        return device.type
    properties = module.get_device_properties(device)
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    return f"commit {done.stdout.strip()}" if done.returncode == 0 else "no git repository"


def _tests(outcomes: Sequence[Outcome]) -> list[str]:
    counts = Counter(each.result for each in outcomes)
    summary = ", ".join(f"{counts[result]} {result}" for result in ("passed", "failed", "skipped"))
    table = [[each.name, each.result, f"{each.seconds:.0f} s"] for each in outcomes]
    reasons = [f"- {each.name}: {each.reason}" for each in outcomes if each.reason]
    return [
        f"## Tests: {summary}",
        "",
        markdown_table(["test", "result", "time"], table, left=2),
        *(["", *reasons] if reasons else []),
    ]


def _measured(measured: dict[str, Any] | None, *, tiny: bool) -> list[str]:
    if measured is None:
        return ["## LoRA beside Hugging Face's Trainer", "", "not measured: the benchmark has failed"]
    rows = [row for name, arms in measured.items() for row in table_rows(name, arms)]
    lines = ["## LoRA beside Hugging Face's Trainer", "", markdown_table(HEADERS, rows, left=2)]
    return lines if tiny else [*lines, "", *(_verdict(name, arms) for name, arms in measured.items())]


def _verdict(workload: str, arms: dict[str, Any]) -> str:
    ours = [arm for name, arm in arms.items() if name in ("ours", "compiled")]
    fastest = max(ours, key=lambda arm: float(arm["per_second"]))
    speedup = fastest["per_second"] / arms["huggingface"]["per_second"]
    utilization = fastest["flop_utilization"]
    used = "unknown utilisation" if utilization is None else f"{utilization:.0%} utilisation"
    reached = speedup >= SPEEDUP and (utilization or 0.0) >= UTILIZATION
    return (
        f"- {workload}: {speedup:.2f} times as fast, {used}; the aim of {SPEEDUP} times and {UTILIZATION:.0%} is "
        f"{'reached' if reached else 'not reached'}"
    )


if __name__ == "__main__":
    main()
