"""A script that ``torchrun`` would start, as a Ray Train function: one process beside each worker, with the environment
that ``torchrun`` gives.

What the first one prints is read: a line that is a JSON object with the search's metric is a report. If it has a
``checkpoint``, a folder, that is kept; a script that is started again finds the newest in ``SWEEPS_CHECKPOINT``.
What it has to write it may put into ``SWEEPS_OUTPUT``, which is removed when all has been read.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import ray
import ray.train
from ray.train.collective import broadcast_from_rank_zero

from sweeps_train.config import FunctionTask

CHECKPOINT = "SWEEPS_CHECKPOINT"
"""Environment variable: the folder to go on from; not set at the first start."""
OUTPUT = "SWEEPS_OUTPUT"
"""Environment variable: a folder of this worker's script alone."""
PATIENCE_S = 5.0
"""For a script that is asked to end."""
BEAT_S = 1.0
"""Between two looks at the scripts of all workers, when the first one prints nothing."""


def script_function(task: FunctionTask, metric: str) -> Callable[[], None]:
    """
    Args:
        task: ``target`` is a file, or a module as after ``python -m``; the arguments become ``--name=value``.
        metric: What a line must have to be a report.
    """

    def train() -> None:
        context = ray.train.get_context()
        is_first = context.get_world_rank() == 0
        address = broadcast_from_rank_zero(_free_address() if is_first else None)
        checkpoint = ray.train.get_checkpoint()
        output = tempfile.mkdtemp()
        process = subprocess.Popen(
            command(task),
            env={
                **_environment(context, address),
                OUTPUT: output,
                **({} if checkpoint is None else {CHECKPOINT: checkpoint.path}),
            },
            stdout=subprocess.PIPE if is_first else None,
            text=True,
            errors="replace",  # whatever a library prints is no reason to end
        )
        try:
            reports = _read(process, metric) if is_first else None
            # All workers report together, and the first one alone knows of what.
            while (report := broadcast_from_rank_zero(_next(reports) if reports is not None else None)) is not None:
                if not report:
                    if reports is None and process.poll():  # the others' may wait for it; the first one's is read out
                        break
                    continue
                folder = report.pop("checkpoint", None)
                ray.train.report(report, checkpoint=ray.train.Checkpoint(folder) if folder and is_first else None)
            if process.wait() != 0:
                raise RuntimeError(
                    f"task._target_={task.target} ended with status {process.returncode} on worker "
                    f"{context.get_world_rank()}; its own words are in the worker's log"
                )
        finally:
            _end(process)
            shutil.rmtree(output, ignore_errors=True)

    return train


def command(task: FunctionTask) -> list[str]:
    """What is started on each worker."""
    started = [task.target] if task.target.endswith(".py") else ["-m", task.target]
    # Text as it is; other values as JSON writes them.
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in task.arguments.items()}
    return [sys.executable, "-u", *started, *(f"--{name}={value}" for name, value in values.items())]


def _environment(context: Any, address: tuple[str, int]) -> dict[str, str]:
    """As ``torchrun`` gives it; Ray's own is of the workers' group, which a script cannot join."""
    host, port = address
    given = {
        "RANK": context.get_world_rank(),
        "LOCAL_RANK": context.get_local_rank(),
        "WORLD_SIZE": context.get_world_size(),
        "LOCAL_WORLD_SIZE": context.get_local_world_size(),
        "GROUP_RANK": context.get_node_rank(),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
    }
    environment = {**os.environ, **{name: str(value) for name, value in given.items()}}
    # The folder in which the user is, and what is importable there.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in [str(Path.cwd()), *sys.path] if path)
    return environment


def _free_address() -> tuple[str, int]:
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
    host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return host, port


Reports = Queue[dict[str, Any] | None]
"""What a script has reported; None at its end."""


def _read(process: subprocess.Popen[str], metric: str) -> Reports:
    """Starts to read what a script prints."""
    reports: Reports = Queue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                report = _report(line, metric)
                if report is None:
                    sys.stdout.write(line)
                else:
                    reports.put(report)
        reports.put(None)

    threading.Thread(target=read, name="script", daemon=True).start()
    return reports


def _next(reports: Reports) -> dict[str, Any] | None:
    """An empty one if there is none within a beat."""
    try:
        return reports.get(timeout=BEAT_S)
    except Empty:
        return {}


def _report(line: str, metric: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found if metric in found else None


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
