"""Process of the preflight: reads configs from stdin, checks their data and models, and writes findings to a file."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import re
import resource
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch

from sweeps.compose.schema_errors import read_config
from sweeps.config import SweepConfig
from sweeps.provenance.redacted_text import redacted_error
from sweeps.validate.argument_checks import argument_mistakes
from sweeps.worker_error import FROM_OUTSIDE, describe_exception, without_location
from sweeps_train.config import EstimatorConfig, FunctionTask, TrainingConfig
from sweeps_train.estimators.probe import probe_mistakes
from sweeps_train.one_batch_check import Finding, examine
from sweeps_train.targets import import_target

ONLY_IN_PREFLIGHT = re.compile(
    r"cuda|nvidia|gpu|triton|process group|torch\.distributed|(\b|_)rank\b|world_size|\bmaster_|ray\.train"
    r"|not implemented for|alloc|MemoryError|start new thread",
    re.IGNORECASE,
)
"""Errors that may not occur in training, since this process has no GPU, no process group and little memory."""
MEMORY_FRACTION = 0.5
"""Fraction of the machine's available memory that the process may use."""


def main() -> None:
    request: dict[str, Any] = json.load(sys.stdin)
    torch.set_num_threads(1)
    limit = int(psutil.virtual_memory().available * MEMORY_FRACTION)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    for name in request["modules"]:
        with contextlib.suppress(Exception):  # the check raises it again
            importlib.import_module(name)
    Path(request["begun"]).touch()  # the driver's limit counts from here
    signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])  # the driver may die before it ends this process
    with Path(request["results"]).open("a", encoding="utf-8") as results:
        for config in request["configs"]:
            found = [[finding.kind, finding.text] for finding in _findings(read_config(config), request["space"])]
            results.write(json.dumps(found) + "\n")
            results.flush()
        for config in request["memory"]:
            results.write(json.dumps(_memory(read_config(config), request["room"], use_gpu=request["use_gpu"])) + "\n")
            results.flush()


def _memory(config: SweepConfig, room: float | None, *, use_gpu: bool) -> dict[str, Any]:
    """Compute the memory of a worker, also with micro batches of one sample if it may not fit otherwise; or return the
    reason why it is unknown."""
    from sweeps_train.memory.memory_need import memory_need

    training, num_workers = config.training(), config.scaling.min_workers
    assert isinstance(training, TrainingConfig)
    try:
        need = memory_need(training, num_workers, None, use_gpu=use_gpu)
        of_one = need
        if room is None or need.total > room:
            of_one = memory_need(training, num_workers, 1, use_gpu=use_gpu)
    except Exception as error:  # noqa: BLE001 - a model's code may raise anything without values
        return {"error": redacted_error(describe_exception(error, rank=0, num_workers=1)).described}
    return {"parts": asdict(need), "total": need.total, "of_one": min(of_one.total, need.total)}


def _findings(config: SweepConfig, space: list[str]) -> Iterator[Finding]:
    try:
        if isinstance(config.task, FunctionTask) and config.task.framework != "script":
            import_target("task", config.task.target)
            for name, each in config.task.datasets.items():
                import_target(f"task.datasets.{name}", each.target)
        mistakes = list(argument_mistakes(config, _signature, space))
        if mistakes:
            yield from (Finding("mistake", line) for line in mistakes)
            return
        training = config.training()
        if isinstance(training, TrainingConfig):
            yield from examine(training, config.scaling.min_workers)
        if isinstance(training, EstimatorConfig):
            yield from (Finding("mistake", line) for line in probe_mistakes(training))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - users' code may raise anything
        told = redacted_error(describe_exception(error, rank=0, num_workers=1))
        code = told.frame.source if told.frame is not None and not told.message else ""  # as of `assert x`
        text = f"{told.type}: {told.message[:10_000]}{code}"
        may_train = ONLY_IN_PREFLIGHT.search(text) or FROM_OUTSIDE.search(without_location(told.described))
        section = next(iter(getattr(error, "__notes__", [])), "")
        target = getattr(getattr(config, section, None), "target", None)
        where = f"{section}._target_={target}: " if target and f"{section}." not in told.message else ""
        yield Finding("warning" if may_train else "mistake", f"{where}{told.described}")


def _signature(target: str) -> inspect.Signature | None:
    """Return the signature of an import path; None if it has none."""
    try:
        return inspect.signature(import_target("task", target))
    except (TypeError, ValueError):
        return None


if __name__ == "__main__":
    main()
