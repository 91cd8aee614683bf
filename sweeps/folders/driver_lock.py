"""The lock on a sweep's folder, by which one driver at a time runs it.

A file lock excludes drivers on the same machine. Storage that machines share may not pass on such locks, so a driver
also writes a heartbeat into the folder, which drivers on other machines watch. The heartbeat of a sweep in an object
store is an object there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sweeps.errors import UserError
from sweeps.files.checksums import parsed, with_checksum
from sweeps.files.whole_files import FOLDER_MODE
from sweeps.storage.object_store import ObjectStore

DRIVER_LOCK = "driver.lock"
"""File that the sweep's driver locks."""
DRIVER_FILE = "driver.json"
"""File with the driver's identity and heartbeat, while it runs and after its death."""
BEAT_S = 2.0
"""Seconds between two heartbeats."""
SILENCE_S = 20.0
"""Seconds without a heartbeat after which a driver on another machine counts as dead, by the clock of the waiting
machine, since clocks differ."""
PATIENCE = "SWEEPS_WAIT_FOR_DRIVER_S"
"""Environment variable with the seconds that a driver waits for another one to end before it is refused. Jobs that
Slurm has requeued and pods set it: on a drained node, the previous driver may still be ending."""
ASKED_WITHIN_S = 0.2
"""Seconds within which a process that only asks whether a folder is held has let go of its lock."""
LEFT = 130
"""Exit status of a driver whose sweep was taken over: interrupted."""

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def only_driver(
    folder: Path,
    sweep: str,
    *,
    machine: str | None = None,
    store: ObjectStore | None = None,
    patience_s: float = 0.0,
    is_stalled: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold a sweep's folder as its only driver.

    Args:
        folder: Folder of the sweep; of one in an object store, this machine's copy.
        sweep: Name of the sweep.
        machine: Identity of the machine; default: this one.
        store: Place of the sweep in an object store.
        patience_s: Maximum seconds to wait for another driver to end.
        is_stalled: Whether the driver makes no progress; it then sends no heartbeat.

    Raises:
        UserError: Another driver runs this sweep; two would train its trials twice.
    """
    # Copies in different folders of one machine have different locks.
    machine = machine or (_machine() if store is None else f"{_machine()}/{folder}")
    file = _DriverFile(folder if store is None else store)
    if store is not None:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    lock = FileLock(folder / DRIVER_LOCK)
    began = time.monotonic()
    try:
        _acquire(lock, sweep, patience_s)
        _wait_for_silence(file, sweep, machine, began + patience_s)
        with _heartbeats(file, sweep, machine, is_stalled):
            yield
    finally:
        lock.release()


def last_heartbeat(folder: Path) -> str | None:
    """Return the last heartbeat of the driver in this folder, on any machine; a driver whose heartbeat changes is
    alive.

    None if the driver has ended properly, or this machine does not see the folder.
    """
    last = _DriverFile(folder).read()
    return None if last is None else f"{last['id']} {last['beat']}"


def driver_was_killed(folder: Path) -> bool:
    """Whether the last driver of this folder ran on this machine, and was killed; False if the folder is another user's
    private one."""
    with contextlib.suppress(PermissionError):
        last = _DriverFile(folder).read()
        return last is not None and last["machine"] == _machine() and not is_held(folder)
    return False


def driver_is_alive(folder: Path) -> bool:
    """Whether another process of this machine is the driver of this folder, even if it is suspended; False if the
    folder cannot be read."""
    with contextlib.suppress(OSError):
        last = _DriverFile(folder).read()
        is_here = last is not None and last["machine"] == _machine() and last.get("pid") != os.getpid()
        return is_here and is_held(folder)
    return False


def is_held(folder: Path) -> bool:
    """Whether a driver on this machine holds a folder."""
    try:
        with (folder / DRIVER_LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that those who ask do not see each other
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _acquire(lock: FileLock, sweep: str, patience_s: float) -> None:
    """Acquire the lock, unless another driver on this machine holds it for longer than ``patience_s``."""
    try:
        lock.acquire(timeout=ASKED_WITHIN_S)
    except Timeout:
        if patience_s > 0:
            logger.warning("%s is run by another process; waiting up to %.0f s for its end", sweep, patience_s)
        try:
            lock.acquire(timeout=patience_s)
        except Timeout:
            raise UserError(f"{sweep} is already run by another process; {_watch(sweep)}") from None


def _wait_for_silence(file: _DriverFile, sweep: str, machine: str, deadline: float) -> None:
    """Wait until a driver on another machine has ended or counts as dead; fail if its heartbeat goes on until the
    deadline."""
    last = file.read()
    if last is None or last["machine"] == machine:
        return  # the lock excludes drivers on this machine
    logger.warning(
        "%s was last run on %s; waiting %.0f s to make sure that it has ended", sweep, _host(last), SILENCE_S
    )
    silent_since = time.monotonic()
    while time.monotonic() < silent_since + SILENCE_S:
        time.sleep(BEAT_S / 4)
        now = file.read()
        if now is None:
            return  # it has ended by itself
        if now != last:
            if time.monotonic() > deadline:
                raise UserError(f"{sweep} is already run by another process, on {_host(last)}; {_watch(sweep)}")
            last, silent_since = now, time.monotonic()


@contextlib.contextmanager
def _heartbeats(file: _DriverFile, sweep: str, machine: str, is_stalled: Callable[[], bool]) -> Iterator[None]:
    me = {"id": uuid.uuid4().hex, "machine": machine, "pid": os.getpid()}
    closed = threading.Event()
    file.write({**me, "beat": 0})

    def beat() -> None:
        count, beaten = 0, time.time()
        while not closed.wait(BEAT_S):
            with contextlib.suppress(OSError):  # a disk or a store that cannot be reached is tried again
                count += 1
                other = file.read()
                if other is None and file.is_reachable and time.time() - beaten > SILENCE_S:  # else it was only removed
                    _leave(sweep, "another driver, which has ended")
                if other is not None and other["id"] not in (me["id"], None):
                    _leave(sweep, _host(other))
                if not is_stalled():
                    file.write({**me, "beat": count})
                    beaten = time.time()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closed.set()
        thread.join()
        with contextlib.suppress(OSError):
            if (last := file.read()) is None or last["id"] in (me["id"], None):  # else another driver has taken over
                file.remove()


def _leave(sweep: str, other: str) -> None:
    """End this process immediately, without writing: another driver has taken over while it was suspended."""
    logger.error("%s was taken over by %s, since this process sent no heartbeat", sweep, other)
    os._exit(LEFT)


class _DriverFile:
    """File with the identity and the heartbeat of a sweep's driver."""

    def __init__(self, place: Path | ObjectStore) -> None:
        self._place = place

    def read(self) -> dict[str, Any] | None:
        """Return the content of the last driver's file; None if that driver has ended properly.

        The file is opened again each time, since NFS then asks its server. If it is damaged, its driver may still run,
        on an unknown machine.
        """
        text: bytes | None = None
        for _ in range(3):  # it may be half written
            if (text := self._text()) is None:
                return None
            with contextlib.suppress(ValueError):
                content = parsed(text)
                if content.keys() >= {"id", "machine", "beat"}:
                    return content
            time.sleep(0.05)
        return {"id": None, "machine": "an unknown machine", "beat": str(text)}

    @property
    def is_reachable(self) -> bool:
        """Whether the file's place exists; a network file system may be gone for a while."""
        return isinstance(self._place, ObjectStore) or self._place.is_dir()

    def write(self, content: dict[str, Any]) -> None:
        # In place, and not by renaming: other machines may cache names for long.
        text = with_checksum(json.dumps(content).encode()) + b"\n"
        if isinstance(self._place, ObjectStore):
            self._place.write(DRIVER_FILE, text)
        else:
            (self._place / DRIVER_FILE).write_bytes(text)

    def remove(self) -> None:
        if isinstance(self._place, ObjectStore):
            self._place.remove(DRIVER_FILE)
        else:
            (self._place / DRIVER_FILE).unlink()

    def _text(self) -> bytes | None:
        if isinstance(self._place, ObjectStore):
            return self._place.read(DRIVER_FILE)
        try:
            return (self._place / DRIVER_FILE).read_bytes()
        except FileNotFoundError:
            return None


def _machine() -> str:
    """Return an identity of this machine that changes at each boot, since a reboot releases its locks."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"
    return f"{socket.gethostname()}/{uuid.getnode()}"


def _host(driver: dict[str, Any]) -> str:
    return str(driver["machine"]).partition("/")[0]


def _watch(sweep: str) -> str:
    return f"watch it with `python -m sweeps show {sweep}`"
