"""Process that ends a program when the worker that started it dies; otherwise the program would keep its GPU.

It is a program that imports only the standard library, so that it starts within milliseconds. It gets the number of a
process group and the seconds between SIGTERM and SIGKILL, and reads a pipe that the worker holds: a byte means that the
program has ended; end of file means that the worker has.
"""

from __future__ import annotations

import os
import signal
import sys
import time

POLL_S = 0.05


def main() -> None:
    group, grace_s = int(sys.argv[1]), float(sys.argv[2])
    if os.fork():
        return  # the worker waits for this process alone, and Ray ends only a worker's own children with it
    os.setsid()
    if os.read(0, 1):
        return
    end_group(group, grace_s)


def end_group(group: int, grace_s: float) -> None:
    """End all processes of a group: SIGTERM, and SIGKILL after ``grace_s`` if some are left."""
    try:
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(POLL_S)
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # there is no such process left; macOS says so by a PermissionError


if __name__ == "__main__":
    main()
