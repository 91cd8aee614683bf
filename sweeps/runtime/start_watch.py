"""Watchdog of Ray's start on this machine, in a process of its own.

Ray waits for its first worker processes without a limit, even if they crash as they start. Meanwhile it holds Python's
lock, so that this process can run no other thread and no handler of a signal, and Ctrl-C has no effect.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

STARTS_WITHIN_S = 1800
"""Maximum seconds for Ray to start, since a machine may be busy; as for each step of a driver's start."""


@contextlib.contextmanager
def killed_if_ray_hangs(temporary: str) -> Iterator[None]:
    """Kill this process, with a message, if the block takes too long.

    Args:
        temporary: Folder for temporary files, in which Ray keeps its logs.
    """
    message = (
        f"sweeps: cluster.address=local: Ray has waited {STARTS_WITHIN_S} s for its first worker processes, which may "
        f"crash as they start; see worker-*.err and raylet.out in {temporary}/ray/session_latest/logs, and run the "
        "command again when that is fixed\n"
    )
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(STARTS_WITHIN_S), message]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as watchdog:
        try:
            yield
        finally:
            watchdog.kill()


def watch(process: int, seconds: int, message: str) -> None:
    """Kill a process after a time, unless it ends before. Seconds in which this process was stopped do not count."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for _ in range(seconds):
        is_closed = bool(select.select([0], [], [], 1.0)[0])  # unless a fork of the process still has the other end
        if is_closed or os.getppid() != process:
            return
    with contextlib.suppress(OSError):  # standard error may be closed, or its disk full
        os.write(2, message.encode())
    os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
