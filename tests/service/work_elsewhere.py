"""Work of the processes in the tests of plans, in a module of its own, which each process imports."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweeps.errors import ConfigError


def seen_here(sees: Callable[[str], bool], *names: str) -> tuple[list[bool], str, int, str | None]:
    return [sees(name) for name in names], str(Path.cwd()), os.getpid(), os.environ.get("PLANTED")


def frozen(_sees: Any) -> int:
    """Number of objects that garbage collections leave out."""
    return gc.get_freeze_count()


def wrong(_sees: Any, text: str) -> None:
    raise ConfigError(text)


def broken(_sees: Any) -> None:
    raise ZeroDivisionError("of ours")


def endless(_sees: Any, folder: str) -> None:
    """Holds the interpreter's lock without using the processor."""
    (Path(folder) / f"process-{os.getpid()}").touch()
    ctypes.PyDLL(None).sleep(3600)


def quick(_sees: Any, answer: int) -> int:
    return answer
