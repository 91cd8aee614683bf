"""Private names of Python (3.11 to 3.14): what it does when a program ends."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import Any, NoReturn


def run_exit_handlers() -> None:
    """End this worker's threads and run its exit handlers, as Python does at the end of a program; Ray then kills the
    process.

    Runs in the main thread. Ray's own way to end a worker (``ray.actor.exit_actor``) waits, before any handler runs,
    for calls and objects that a failed training still holds.
    """
    import ray

    atexit.unregister(ray.shutdown)  # otherwise the caller would not notice the end
    _run_exit_handlers()


def end_process(status: int) -> NoReturn:
    """End this process as ``sys.exit`` does, but without the exit handlers of C++.

    The one of Ray aborts the process if its connection to the cluster was interrupted while it was being made. Python
    also does not free all objects of the libraries, which would take seconds.
    """
    _run_exit_handlers()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # none, its reader has ended, or closed
            stream.flush()
    os._exit(status)


def _run_exit_handlers() -> None:
    python: Any = threading
    with contextlib.suppress(KeyboardInterrupt):  # it then waits for no thread
        python._shutdown()
    handlers: Any = atexit
    handlers._run_exitfuncs()
