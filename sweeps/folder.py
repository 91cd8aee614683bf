"""The one process that runs a sweep, and how it keeps others away: those on this machine by a lock, and those on other
machines, whose locks this one may not see on storage that they share, by a sign of life in the sweep's folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sweeps.errors import UserError

DRIVER_LOCK = "driver.lock"
"""In the sweep's folder: held by its driver."""
DRIVER_FILE = "driver.json"
"""Beside it, as long as the driver runs, and after its death: who it is, and a number that grows."""
LOG_FILE = "driver.log"
"""What a driver in the background prints."""
BEAT_S = 2.0
SILENCE_S = 20.0
"""A driver on another machine whose number has not grown for so long is dead. What is compared is one machine's clock
with itself: clocks of machines differ."""
LEFT = 130
"""Exit status of a driver that was taken for dead: interrupted."""

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def the_only_driver(folder: Path, sweep: str, *, machine: str | None = None) -> Iterator[None]:
    """
    Args:
        folder: The sweep's.
        sweep: Its name.
        machine: Default: this one.

    Raises:
        UserError: Another driver runs this sweep; two would train its trials twice.
    """
    machine = machine or _machine()
    lock = FileLock(folder / DRIVER_LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise UserError(f"{sweep} is run by another process already; {_watch(sweep)}") from None
    try:
        _wait_for_silence(folder, sweep, machine)
        with _signs_of_life(folder, sweep, machine):
            yield
    finally:
        lock.release()


def last_sign(folder: Path) -> str | None:
    """The last sign of life of the driver in this folder, from whichever machine: another one than before says that it
    lives. None if it has ended by itself, or its folder is not to be seen from here."""
    last = _read(folder)
    return None if last is None else f"{last['id']} {last['beat']}"


def has_died(folder: Path) -> bool:
    """Whether the driver that was last in this folder was on this machine, and was killed."""
    last = _read(folder)
    if last is None or last["machine"] != _machine():
        return False
    try:
        with FileLock(folder / DRIVER_LOCK, timeout=0):
            return True
    except Timeout:
        return False


def _wait_for_silence(folder: Path, sweep: str, machine: str) -> None:
    """
    Raises:
        UserError: A driver on another machine gives signs of life.
    """
    last = _read(folder)
    if last is None or last["machine"] == machine:
        return  # of this machine the lock has told
    logger.warning("%s was last run on %s; waiting %.0f s to see that it no longer is", sweep, _host(last), SILENCE_S)
    deadline = time.monotonic() + SILENCE_S
    while time.monotonic() < deadline:
        time.sleep(BEAT_S / 4)
        if _read(folder) != last:
            raise UserError(f"{sweep} is run by another process already, on {_host(last)}; {_watch(sweep)}")


@contextlib.contextmanager
def _signs_of_life(folder: Path, sweep: str, machine: str) -> Iterator[None]:
    me = {"id": uuid.uuid4().hex, "machine": machine, "pid": os.getpid()}
    closed = threading.Event()
    _write(folder, {**me, "beat": 0})

    def live() -> None:
        beat = 0
        while not closed.wait(BEAT_S):
            with contextlib.suppress(OSError):  # a disk that is full, or away, is asked again
                beat += 1
                other = _read(folder)
                if other is not None and other["id"] != me["id"]:
                    _leave(sweep, other)
                _write(folder, {**me, "beat": beat})

    thread = threading.Thread(target=live, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()
        with contextlib.suppress(OSError):
            (folder / DRIVER_FILE).unlink()


def _leave(sweep: str, other: dict[str, Any]) -> None:
    """Another driver has taken over while this process slept. It ends as if killed: what it wrote would be doubled."""
    logger.error("%s was taken over by %s, since this process gave no sign of life", sweep, _host(other))
    os._exit(LEFT)


def _read(folder: Path) -> dict[str, Any] | None:
    """Of the last driver; None if it ended by itself. Opened anew each time, as NFS then asks its server."""
    for _ in range(3):  # half of it may be written
        try:
            content: dict[str, Any] = json.loads((folder / DRIVER_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            time.sleep(0.05)
        else:
            return content
    return None


def _write(folder: Path, content: dict[str, Any]) -> None:
    # In place, not by renaming: other machines may keep names in their caches for long.
    (folder / DRIVER_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")


def _machine() -> str:
    """This machine, until it is started anew: its locks end with it."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"
    return f"{socket.gethostname()}/{uuid.getnode()}"


def _host(driver: dict[str, Any]) -> str:
    return str(driver["machine"]).partition("/")[0]


def _watch(sweep: str) -> str:
    return f"watch it with `python -m sweeps show {sweep}`"
