"""Kills a process before each of its operations on files, one after another."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator

OPERATIONS = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
"""Events of Python that come before such an operation."""


def killed_before(number: int, act: Callable[[], object]) -> bool:
    """Run a function in a fork of this process that is killed before its n-th operation on files; returns whether it
    had as many. The fork changes nothing here but files."""
    if (process := os.fork()) == 0:
        operations = itertools.count(1)

        def look(event: str, _: object) -> None:
            if event in OPERATIONS and next(operations) == number:
                os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            sys.addaudithook(look)
            act()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(process, 0)
    assert os.WIFSIGNALED(ended) or os.WEXITSTATUS(ended) == 0, "the function has failed"
    return os.WIFSIGNALED(ended)


def all_kills(act: Callable[[], object], prepare: Callable[[], object]) -> Iterator[int]:
    """Prepare the files and run a function that is killed before its first operation, then before its second one, and
    so on until it ends by itself. Yields the number of the operation after each run."""
    for number in itertools.count(1):
        prepare()
        was_killed = killed_before(number, act)
        yield number
        if not was_killed:
            return
