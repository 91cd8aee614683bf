"""A script for ``torchrun`` as a Ray Train function: one process beside each worker, with the environment of
``torchrun``.

The output of the first process is read: a line that is a JSON object with the search's metric is a report. If it has a
``checkpoint``, a folder, this is saved; a script that is started again finds the newest one in ``SWEEPS_CHECKPOINT``.
The folder ``SWEEPS_OUTPUT`` is for files of the script, and removed at the end.
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
"""Environment variable: folder of the checkpoint to continue from; unset at the first start."""
OUTPUT = "SWEEPS_OUTPUT"
"""Environment variable: folder for the files of this worker's script."""
TERMINATION_S = 5.0
"""Seconds that a script has to end after SIGTERM."""
POLL_S = 1.0
"""Seconds between two checks of the scripts of all workers while the first one prints nothing."""


def script_function(task: FunctionTask, metric: str) -> Callable[[], None]:
    """Return a Ray Train function that runs a script.

    Args:
        task: ``target`` is a file, or a module as after ``python -m``; the arguments become ``--name=value``.
        metric: Name by which a line of JSON is recognised as a report.

    Raises:
        RuntimeError: From the returned function: a script has ended with an error.
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
            errors="replace",  # output that is not UTF-8 is no error
        )
        try:
            reports = _read(process, metric) if is_first else None
            # All workers report together; only the first one has the metrics.
            while (report := broadcast_from_rank_zero(_next(reports) if reports is not None else None)) is not None:
                if not report:
                    # Other scripts may wait for this one. The first worker's is read to its end instead.
                    if reports is None and process.poll():
                        break
                    continue
                folder = report.pop("checkpoint", None)
                ray.train.report(report, checkpoint=ray.train.Checkpoint(folder) if folder and is_first else None)
            if process.wait() != 0:
                raise RuntimeError(
                    f"task._target_={task.target} ended with status {process.returncode} on worker "
                    f"{context.get_world_rank()}; its output is in the worker's log"
                )
        finally:
            _end(process)
            shutil.rmtree(output, ignore_errors=True)

    return train


def command(task: FunctionTask) -> list[str]:
    """Command line of the script on each worker.

    >>> task = FunctionTask(kind="function", _target_="train.py", arguments={"lr": 0.1, "name": "x"})
    >>> command(task)[1:]
    ['-u', 'train.py', '--lr=0.1', '--name=x']
    """
    started = [task.target] if task.target.endswith(".py") else ["-m", task.target]
    # Text unchanged, other values as JSON.
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in task.arguments.items()}
    return [sys.executable, "-u", *started, *(f"--{name}={value}" for name, value in values.items())]


def _environment(context: Any, address: tuple[str, int]) -> dict[str, str]:
    """Environment of ``torchrun``. Ray's own belongs to the workers' process group, which a script cannot join."""
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
    # The user's working folder, and everything importable here.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in [str(Path.cwd()), *sys.path] if path)
    return environment


def _free_address() -> tuple[str, int]:
    with socket.socket() as found:
        found.bind(("", 0))
        port: int = found.getsockname()[1]
    host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return host, port


ReportQueue = Queue[dict[str, Any] | None]
"""Reports of a script; None at its end."""


def _read(process: subprocess.Popen[str], metric: str) -> ReportQueue:
    """Start a thread that reads a script's output."""
    reports: ReportQueue = Queue()

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


def _next(reports: ReportQueue) -> dict[str, Any] | None:
    """The next report; None at the end, and an empty one if there is none within ``POLL_S``."""
    try:
        return reports.get(timeout=POLL_S)
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
            process.wait(TERMINATION_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
