"""The stacks that ``faulthandler`` has written into the logs of workers that crashed or hang."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeps.runtime.worker_log import STACKS_SIGNAL
from sweeps.trial_files import BEGINS, log_name
from sweeps.worker_error import Frame, WorkerError, is_users

END = 200_000
"""Bytes of a log's end that are looked at."""
_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_OURS = str(Path(__file__).with_name("worker.py"))
"""Marks the stack of the thread that trains."""


def explained(error: WorkerError, logs: str) -> WorkerError:
    """A lost worker with what its log says of its death.

    Args:
        error: Of the worker.
        logs: Folder of the trial's logs.
    """
    text = last_start(logs, error.rank)
    where = f"worker {error.rank} on {error.node}"
    if text is None:
        return error
    deaths = list(_FATAL.finditer(text))
    if deaths:
        stacks = text[deaths[-1].start() :]
        message = f"{where} crashed: {deaths[-1][1]}"
        return replace(error, message=message, frame=_training_frame(stacks), traceback=stacks)
    if "node" in error.message.partition(":")[2]:
        return error
    why = "was killed, as when memory runs out, or called os._exit"
    return replace(error, message=f"{where} was lost: its process {why}")


def hang(message: str, processes: Sequence[tuple[str, int]], places: Sequence[str], logs: str) -> WorkerError:
    """Errors of workers that hang and have been asked for their stacks.

    Args:
        message: What was noticed.
        processes: Node and process id of each worker, by rank.
        places: ``host`` or ``host/0`` of each.
        logs: Folder of the trial's logs.
    """
    stacks: list[str] = []
    at: dict[str, list[int]] = {}
    for rank in range(len(processes)):
        text = last_start(logs, rank) or ""
        first = _THREAD.search(text)
        dump = text[first.start() :] if first is not None else "(it has written no stacks)"
        stacks.append(f"--- worker {rank} ---\n{dump}")
        if (frame := _training_frame(dump)) is not None:
            at.setdefault(str(frame), []).append(rank)
    found = "; ".join(f"{_workers(ranks)} at {frame}" for frame, ranks in sorted(at.items(), key=lambda each: each[1]))
    return WorkerError(
        kind="hang",
        type="Hang",
        message=f"{message}{f' ({found})' if found else ''}",
        rank=0,
        num_workers=len(processes),
        node=places[0].partition("/")[0] if places else "",
        traceback="\n".join(stacks),
    )


def ask_for_stacks(processes: Iterable[tuple[str, int]]) -> list[Any]:
    """Lets processes, by node and id, write their stacks into their logs; Ray's references to wait for."""
    by_node: dict[str, list[int]] = {}
    for node, process in processes:
        by_node.setdefault(node, []).append(process)
    signals = ray.remote(_signal)
    return [
        signals.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(ids)
        for node, ids in by_node.items()
    ]


def last_start(logs: str, rank: int) -> str | None:
    """The end of a worker's log, as far as it is of its last start; None if there is no log."""
    try:
        with (Path(logs) / log_name(rank)).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - END))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    return text.rpartition(BEGINS)[2]


def _signal(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, STACKS_SIGNAL)


def _training_frame(stacks: str) -> Frame | None:
    """Where the user's code was, in the thread that trains."""
    threads = _THREAD.split(stacks)[1:]
    for thread in [each for each in threads if _OURS in each] or threads:
        frames = _FRAME.findall(thread)
        for file, line, function in frames:
            if is_users(file):
                return Frame(file, int(line), function, linecache.getline(file, int(line)).strip())
    return None


def _workers(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"worker {ranks[0]}"
    return f"workers {', '.join(map(str, ranks))}" if len(ranks) <= 4 else f"{len(ranks)} workers"
