"""Runs the command line with an error at the n-th call of one function of the driver, or with its death there, with
Ctrl-C, or with a tracking server that stops answering.

python raising.py MODULE:FUNCTION N [--kill | --ctrl-c | --silent-server] run conf=digits ...
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

from sweeps.tracking.retry import GaveUp


def function_at(place: str) -> tuple[Any, str, Callable[..., Any]]:
    """The owner, name and value of what MODULE:FUNCTION names."""
    module, _, name = place.partition(":")
    *path, last = name.split(".")
    owner: Any = functools.reduce(getattr, path, importlib.import_module(module))
    return owner, last, getattr(owner, last)


def main() -> None:
    place, number, *arguments = sys.argv[1:]
    way = arguments.pop(0) if arguments[0].startswith("--") else ""
    owner, name, called = function_at(place)
    calls, driver = itertools.count(1), os.getpid()

    @functools.wraps(called)
    def raising(*values: Any, **named: Any) -> Any:
        if os.getpid() == driver and next(calls) == int(number):
            if way == "--kill":
                os.kill(driver, signal.SIGKILL)
            if way == "--ctrl-c":
                os.kill(driver, signal.SIGINT)
                return called(*values, **named)
            raise GaveUp if way == "--silent-server" else RuntimeError("nobody foresaw this")
        return called(*values, **named)

    setattr(owner, name, raising)
    sys.argv = ["sweeps", *arguments]
    from sweeps.cli import main as run

    run()


if __name__ == "__main__":
    main()
