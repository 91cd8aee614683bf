"""Private names of Python (3.11 to 3.14): what it does when a program ends."""

from __future__ import annotations

import atexit
import threading
from typing import Any


def run_exit_handlers() -> None:
    """End this worker's threads and run its exit handlers, as Python does at the end of a program; Ray then kills the
    process.

    Runs in the main thread. Ray's own way to end a worker (``ray.actor.exit_actor``) waits, before any handler runs,
    for calls and objects that a failed training still holds.
    """
    import ray

    atexit.unregister(ray.shutdown)  # otherwise the caller would not notice the end
    python: Any = threading
    python._shutdown()
    handlers: Any = atexit
    handlers._run_exitfuncs()
