"""A script for ``torchrun`` as a Ray Train function: one process for each worker, with the environment of ``torchrun``.

The output of the first process is read: a line that is a JSON object with the search's metric is a report. If it has a
``checkpoint``, the path of a folder, that folder is saved; a restarted script finds the newest one in
``SWEEPS_CHECKPOINT``. The folder ``SWEEPS_OUTPUT`` is for files of the script, and is removed at the end.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import ray.train
from ray.train.collective import broadcast_from_rank_zero

from sweeps_train.command.launch import Place, with_python_path
from sweeps_train.command.placeholders import as_text
from sweeps_train.command.program import Program, describe_status
from sweeps_train.config import FunctionTask
from sweeps_train.frameworks.step_log import note
from sweeps_train.reports.reported_metrics import flattened
from sweeps_train.workers.own_folder import as_seen_from_anywhere, hint, start_folder

CHECKPOINT = "SWEEPS_CHECKPOINT"
"""Environment variable: folder of the checkpoint to continue from; unset at the first start."""
OUTPUT = "SWEEPS_OUTPUT"
"""Environment variable: folder for the files of this worker's script."""
TERMINATION_S = 5.0
"""Maximum seconds for a script to end after SIGTERM."""
POLL_S = 1.0
"""Seconds between two checks of the scripts of all workers while the first one prints nothing."""


def script_function(task: FunctionTask, metric: str) -> Callable[[], None]:
    """Return a Ray Train function that runs a script, which is a file, or a module as after ``python -m``. The
    arguments become ``--name=value``; a line of JSON that has the metric is a report.

    Raises:
        RuntimeError: From the returned function: a script has ended with an error.
    """

    def train() -> None:
        place = Place.current()
        resumed = ray.train.get_checkpoint()
        output = tempfile.mkdtemp()
        reports: ReportQueue = Queue()
        has_noted = False
        program = Program(
            command(task),
            environment={
                **with_python_path(place.environment("per_worker")),
                OUTPUT: output,
                **({} if resumed is None else {CHECKPOINT: resumed.path}),
            },
            grace_s=TERMINATION_S,
            on_line=(lambda line: _take(line, metric, reports)) if place.rank == 0 else None,
        )
        try:
            # All workers report together; only the first one has the metrics.
            while (taken := broadcast_from_rank_zero(_next(reports, program) if place.rank == 0 else None)) is not None:
                report, last_write = taken
                if not report:
                    # Other scripts may wait for this one. The first worker's is read to its end instead.
                    if place.rank != 0 and program.poll():
                        break
                    continue
                folder = report.pop("checkpoint", None)
                checkpoint = ray.train.Checkpoint(folder) if folder and place.rank == 0 else None
                ray.train.report(report, checkpoint=checkpoint)
                is_reported_again = any(later.get("checkpoint") == folder for later, _ in [*reports.queue])
                if folder and not has_noted and is_reported_again and _last_write(folder) > last_write:
                    has_noted = True
                    note(
                        f"the script overwrites its checkpoint {folder} before it is copied, so the saved weights may "
                        "be those of a later report; save each in a folder of its own"
                    )
            if (status := program.wait()) != 0:
                program.finish_output()
                start = start_folder()  # the arguments of a script have no placeholders
                more = hint(program.last_lines, start, str(start)) if task.working_folder is None else ""
                more = more or "its output is in the worker's log"
                raise RuntimeError(
                    f"task._target_={task.target} {describe_status(status)} on worker {place.rank}; {more}"
                )
        finally:
            program.end()
            shutil.rmtree(output, ignore_errors=True)

    return train


def command(task: FunctionTask) -> list[str]:
    """Return the command line of the script, the same on each worker.

    >>> task = FunctionTask(kind="function", _target_="train.py", arguments={"lr": 0.1, "name": "x"})
    >>> command(task)[1:]
    ['-u', 'train.py', '--lr=0.1', '--name=x']
    """
    start = start_folder()
    file = str(Path(task.target).expanduser())
    started = [as_seen_from_anywhere(file, start)] if file.endswith(".py") else ["-m", file]
    arguments = as_seen_from_anywhere(task.arguments, start)
    return [sys.executable, "-u", *started, *(f"--{name}={as_text(value)}" for name, value in arguments.items())]


Taken = tuple[dict[str, Any], int]
"""Report of a script, and the last write to its checkpoint when it was read."""
ReportQueue = Queue[Taken]
"""Reports of a script."""


def _take(line: str, metric: str, reports: ReportQueue) -> None:
    report = _report(line, metric)
    if report is not None:
        reports.put((report, _last_write(report.get("checkpoint"))))


def _last_write(folder: Any) -> int:
    """Return the newest time, in nanoseconds, at which a file in a checkpoint's folder was written; 0 if there is no
    such folder or file, or it is being removed."""
    try:
        files = Path(folder).resolve().rglob("*") if isinstance(folder, str) else ()
        return max((file.stat().st_mtime_ns for file in files if file.is_file()), default=0)
    except (OSError, ValueError):
        return 0


def _next(reports: ReportQueue, program: Program) -> Taken | None:
    """Return the next report; None at the end, and an empty one if none arrives within ``POLL_S``."""
    has_ended = program.poll() is not None
    if has_ended:
        program.finish_output()
    try:
        return reports.get(timeout=0.0 if has_ended else POLL_S)
    except Empty:
        return None if has_ended else ({}, 0)


def _report(line: str, metric: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):  # also a number of thousands of digits, and deep nesting
        return None
    return found if metric in dict(flattened(found)) else None
