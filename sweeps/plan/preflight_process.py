"""The process that looks at data and models: reads what to look at from stdin, and writes what it finds to a file."""

from __future__ import annotations

import inspect
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

from sweeps.compose.schema_errors import read_config
from sweeps.config import SweepConfig
from sweeps.provenance.redacted_text import redacted_error
from sweeps.validate.arguments import argument_mistakes
from sweeps.worker_error import FROM_OUTSIDE, caught, without_place
from sweeps_train.config import FunctionTask, TrainingConfig
from sweeps_train.preflight import Finding, examine
from sweeps_train.targets import import_target

OF_THIS_PROCESS = re.compile(
    r"cuda|nvidia|gpu|triton|process group|torch\.distributed|(\b|_)rank\b|world_size|\bmaster_|ray\.train"
    r"|not implemented for|alloc|MemoryError|start new thread",
    re.IGNORECASE,
)
"""Errors that training processes need not have: here are no GPU, no process group and little memory."""
NICENESS = 10
MOST_MEMORY = 0.5
"""Part of the machine's available memory that the process may take."""


def main() -> None:
    order: dict[str, Any] = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, order["timeout_s"])  # its driver may die before it ends this process
    os.nice(NICENESS)  # Ray starts beside it
    torch.set_num_threads(1)
    most = int(psutil.virtual_memory().available * MOST_MEMORY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))
    with Path(order["results"]).open("a", encoding="utf-8") as results:
        for config in order["configs"]:
            found = [[finding.kind, finding.text] for finding in _findings(read_config(config), order["space"])]
            results.write(json.dumps(found) + "\n")
            results.flush()


def _findings(config: SweepConfig, space: list[str]) -> Iterator[Finding]:
    try:
        if isinstance(config.task, FunctionTask) and config.task.framework != "script":
            import_target("task", config.task.target)
        mistakes = list(argument_mistakes(config, _signature, space))
        if mistakes:
            yield from (Finding("mistake", line) for line in mistakes)
            return
        training = config.training()
        if isinstance(training, TrainingConfig):
            yield from examine(training)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's code raises
        told = redacted_error(caught(error, rank=0, num_workers=1))
        code = told.frame.source if told.frame is not None and not told.message else ""  # an assertion's
        said = f"{told.type}: {told.message[:10_000]}{code}"
        passes = OF_THIS_PROCESS.search(said) or FROM_OUTSIDE.search(without_place(told.described))
        section = next(iter(getattr(error, "__notes__", [])), "")
        target = getattr(getattr(config, section, None), "target", None)
        where = f"{section}._target_={target}: " if target and f"{section}." not in told.message else ""
        yield Finding("warning" if passes else "mistake", f"{where}{told.described}")


def _signature(target: str) -> inspect.Signature | None:
    """The signature of what can be imported; what cannot is told by what needs it."""
    try:
        return inspect.signature(import_target("task", target))
    except (TypeError, ValueError):
        return None


if __name__ == "__main__":
    main()
