"""Runs the command line with an error at the n-th call of one function of the driver, or with its death there.

python raising.py MODULE:FUNCTION N [--kill] run conf=digits ...
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any


def function_at(place: str) -> tuple[Any, str, Callable[..., Any]]:
    """The owner, name and value of what MODULE:FUNCTION names."""
    module, _, name = place.partition(":")
    *path, last = name.split(".")
    owner: Any = functools.reduce(getattr, path, importlib.import_module(module))
    return owner, last, getattr(owner, last)


def main() -> None:
    place, number, *arguments = sys.argv[1:]
    kills = arguments[0] == "--kill"
    owner, name, called = function_at(place)
    calls, driver = itertools.count(1), os.getpid()

    @functools.wraps(called)
    def raising(*values: Any, **named: Any) -> Any:
        if os.getpid() == driver and next(calls) == int(number):
            if kills:
                os.kill(driver, signal.SIGKILL)
            raise RuntimeError("nobody foresaw this")
        return called(*values, **named)

    setattr(owner, name, raising)
    sys.argv = ["sweeps", *arguments[kills:]]
    from sweeps.cli import main as run

    run()


if __name__ == "__main__":
    main()
