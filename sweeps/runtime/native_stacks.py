"""Stacks that ``faulthandler`` has written into the logs of workers that crashed or hang."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from sweeps.folders.trial_files import LOGS, START_LINE, log_name
from sweeps.runtime.node_resources import on_node
from sweeps.runtime.worker_log import STACKS_SIGNAL
from sweeps.storage.location import is_remote, node_copy
from sweeps.worker_error import Frame, WorkerError, is_user_code

LOG_END = 200_000
"""Bytes read from the end of a log."""
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_WORKER_LOOP = str(Path(__file__).with_name("worker_loop.py"))
"""Source file that occurs only in the stack of the training thread."""


def explained(error: WorkerError, log_folder: str) -> WorkerError:
    """Return a lost worker's error, with the reason found in its log if there is one."""
    text = last_start(log_folder, error.rank)
    worker = f"worker {error.rank} on {error.node}"
    if text is None or not error.node:  # without a node, it is the process that runs the group
        return error
    crashes = list(_FATAL.finditer(text))
    if crashes:
        stacks = text[crashes[-1].start() :]
        message = f"{worker} crashed: {crashes[-1][1]}"
        return replace(error, message=message, frame=_training_frame(stacks), traceback=stacks)
    if "node" in error.message.partition(":")[2]:
        return error
    reason = "was killed, as when memory runs out, or called os._exit"
    return replace(error, message=f"{worker} was lost: its process {reason}")


def hang_error(
    message: str, processes: Sequence[tuple[str, int]], locations: Sequence[str], log_folder: str
) -> WorkerError:
    """Return the error of hanging workers that have been asked for their stacks; see ``hang.diagnose_hang``."""
    stacks: list[str] = []
    ranks_by_frame: dict[str, list[int]] = {}
    for rank in range(len(processes)):
        text = last_start(log_folder, rank) or ""
        first = _THREAD.search(text)
        dump = text[first.start() :] if first is not None else "(it has written no stacks)"
        stacks.append(f"--- worker {rank} ---\n{dump}")
        if (frame := _training_frame(dump)) is not None:
            ranks_by_frame.setdefault(str(frame), []).append(rank)
    by_rank = sorted(ranks_by_frame.items(), key=lambda each: each[1])
    found = "; ".join(f"{named(ranks)} at {frame}" for frame, ranks in by_rank)
    return WorkerError(
        kind="hang",
        type="Hang",
        message=f"{message}{f' ({found})' if found else ''}; all stacks are in {LOGS}/ of the trial's run",
        rank=0,
        num_workers=len(processes),
        node=locations[0].partition("/")[0] if locations else "",
        traceback="\n".join(stacks),
    )


def ask_for_stacks(processes: Iterable[tuple[str, int]]) -> list[Any]:
    """Ask processes, given by node and process id, to write their stacks into their logs; return Ray's references to
    wait for."""
    by_node: dict[str, list[int]] = {}
    for node, process in processes:
        by_node.setdefault(node, []).append(process)
    signals = ray.remote(_signal)
    return [signals.options(max_retries=0, **on_node(node)).remote(ids) for node, ids in by_node.items()]


def last_start(log_folder: str, rank: int) -> str | None:
    """Return the part of a worker's log since its last start; None if there is no log."""
    folder = Path(log_folder)
    if is_remote(log_folder):  # the worker may have run on this node
        folder = node_copy(log_folder, ray.get_runtime_context().get_node_id())
    try:
        with (folder / log_name(rank)).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_END))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    return text.rpartition(START_LINE)[2]


def _signal(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, STACKS_SIGNAL)


def _training_frame(stacks: str) -> Frame | None:
    """Return the innermost frame of the user's code in the training thread."""
    threads = _THREAD.split(stacks)[1:]
    for thread in [each for each in threads if _WORKER_LOOP in each] or threads:
        frames = _FRAME.findall(thread)
        for file, line, function in frames:
            if is_user_code(file):
                return Frame(file, int(line), function, linecache.getline(file, int(line)).strip())
    return None


def named(ranks: Sequence[int]) -> str:
    """Return workers in words, by their ranks."""
    if len(ranks) == 1:
        return f"worker {ranks[0]}"
    return f"workers {', '.join(map(str, ranks))}" if len(ranks) <= 4 else f"{len(ranks)} workers"
