"""Process that ends a program when the worker that started it dies; otherwise the program would keep its GPU.

It is a program that imports only the standard library, so that it starts within milliseconds. It gets the number of a
process group and the seconds between SIGTERM and SIGKILL, and reads a pipe that the worker holds: a byte means that the
program has ended; end of file means that the worker has.

Child processes that left the group belong to the program, too: torch's launcher starts its workers in sessions of their
own. They are found by their parents, in Linux alone, and so daemons, whose parents have ended, are left alone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping

Started = Mapping[int, bytes]
"""Times at which processes started, in the kernel's unit, by their ids, which the kernel uses again."""
POLL_S = 0.05
LOOK_S = 5.0
"""Seconds between two looks for child processes of the program, whose parents may have been killed before the worker
is."""
PARENT, GROUP, START = 1, 2, 19
"""Positions in ``/proc/ID/stat`` after the name."""


def main() -> None:
    group, grace_s = int(sys.argv[1]), float(sys.argv[2])
    if os.fork():
        return  # the worker waits for this process alone, and Ray ends only a worker's own children with it
    os.setsid()
    started: Started = {}
    while not select.select([0], [], [], LOOK_S)[0]:
        started = processes_of(group, started)
    if os.read(0, 1):
        return
    end_group(group, grace_s, started)


def end_group(group: int, grace_s: float, started: Started) -> None:
    """End all processes of a group and those that they have ``started``, as far as known, and now: SIGTERM, and SIGKILL
    after ``grace_s`` if some are left. The group gets SIGTERM first, since launchers pass it on."""
    deadline = time.monotonic() + grace_s
    started = processes_of(group, started)
    _end(lambda number: os.killpg(group, number), deadline)
    started = processes_of(group, started)
    _end(lambda number: _signal(started, number), deadline)


def processes_of(group: int, known: Started) -> Started:
    """Return the living processes of a group, the ``known`` ones, and all that these have started; empty except on
    Linux."""
    ids = os.listdir("/proc") if sys.platform == "linux" else []  # noqa: PTH208 - pathlib takes long to import
    rows = {int(each): row for each in ids if each.isdecimal() and (row := _row(each))}
    found = new = {each for each, row in rows.items() if int(row[GROUP]) == group or known.get(each) == row[START]}
    while new:
        new = {each for each, row in rows.items() if int(row[PARENT]) in new} - found
        found = found | new
    return {each: rows[each][START] for each in found}


def _row(process: int | str) -> list[bytes]:
    """Return the state of a process; empty if it has ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes long to import
            row = file.read().rpartition(b")")[2].split()
    except OSError:
        return []
    return [] if row[0] == b"Z" else row


def _end(send: Callable[[int], None], deadline: float) -> None:
    # There is no such process left; macOS says so by a PermissionError.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(signal.SIGTERM)
        while time.monotonic() < deadline:
            send(0)
            time.sleep(POLL_S)
        send(signal.SIGKILL)


def _signal(started: Started, number: int) -> None:
    """Send a signal to the processes that still live.

    Raises:
        ProcessLookupError: There is none.
    """
    living = [each for each, start in started.items() if _row(each)[START : START + 1] == [start]]
    if not living:
        raise ProcessLookupError
    for each in living:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ends just now, or is another user's
            os.kill(each, number)


if __name__ == "__main__":
    main()
