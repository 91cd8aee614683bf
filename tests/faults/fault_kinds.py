"""The kinds of faults that the campaign injects: a table of functions, each with one line on what it does.

Those of ``RUNNING`` disturb a sweep that runs, those of ``RESTING`` its files while no driver runs.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import TypeVar

import psutil
from victim import WORKER, Victim

Thing = TypeVar("Thing")
Fault = Callable[[Victim, random.Random], object]
SECONDS = 3.0
"""Duration of a fault that passes."""

PROCESSES = {
    "worker": (WORKER,),
    "Tune actor": ("ray::Trial", "ray::ResourceTrainable"),
    "broker": ("ray::Broker",),
    "actor of a worker group": ("ray::SynchronizationActor",),
    "autoscaling coordinator": ("ray::_AutoscalingCoordinator",),
    "GCS": ("gcs_server",),
    "raylet": ("raylet",),
}
"""Beginnings of the titles of processes, or names of their programs."""


class NothingToHit(Exception):
    """The sweep has no such process or file at this moment."""


def passing(
    find: Callable[[Victim], object],
    begin: Callable[[object], object],
    end: Callable[[object], object],
    victim: Victim,
    _: random.Random,
) -> None:
    """Disturb something that the sweep depends on for ``SECONDS``."""
    thing = _there(find(victim))
    begin(thing)
    time.sleep(SECONDS)
    end(thing)


# --- processes -------------------------------------------------------------------------------------------------------


def one(kind: str, number: int, victim: Victim, chance: random.Random) -> None:
    """Send a signal to one process."""
    _signal(chance.choice(_found(victim, kind)), number)


def all_of(kind: str, victim: Victim, _: random.Random) -> None:
    """Kill all processes of a kind at once."""
    for each in _found(victim, kind):
        _signal(each, signal.SIGKILL)


def paused(kind: str, victim: Victim, chance: random.Random) -> None:
    """Stop a process for seconds."""
    process = chance.choice(_found(victim, kind))
    _signal(process, signal.SIGSTOP)
    time.sleep(SECONDS)
    _signal(process, signal.SIGCONT)


def driver_gets(number: int, victim: Victim, _: random.Random) -> None:
    """Send a signal to the driver."""
    assert victim.process is not None
    victim.process.send_signal(number)


def group_gets(number: int, victim: Victim, _: random.Random) -> None:
    """Send a signal to the driver's whole process group, as a terminal that is closed does."""
    assert victim.process is not None
    os.killpg(victim.process.pid, number)


def everything_killed(victim: Victim, _: random.Random) -> None:
    """Kill the driver and all of its Ray at once, as when the machine stops."""
    victim.kill()


# --- MLflow, disks and clocks -----------------------------------------------------------------------------------------


def database_locked(victim: Victim, _: random.Random) -> None:
    """Lock MLflow's SQLite file for seconds."""
    if victim.record.postgres is not None:
        raise NothingToHit
    file = victim.record.database.removeprefix("sqlite:///")
    database = sqlite3.connect(file, timeout=10, isolation_level=None)
    with closing(database), suppress(sqlite3.OperationalError):  # others hold it for as long
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(SECONDS)
        database.execute("ROLLBACK")


def disk_full_until_the_end(victim: Victim, _: random.Random) -> None:
    """Fill the disk of the sweep's folder until the driver has ended."""
    disk = _there(victim.disk)
    disk.fill()
    victim.wait(60)
    disk.free()


def disk_read_only(victim: Victim, _: random.Random) -> None:
    """Let the disk of the sweep's folder break down, and repair it when the driver has ended."""
    disk = _there(victim.disk)
    disk.break_down()
    if victim.wait(120) is None:
        victim.kill()
    victim.reap(5)
    disk.repair()


def clock_jumps(seconds: float, victim: Victim, _: random.Random) -> None:
    """Let the clocks jump, and after seconds back again."""
    victim.set_clock(seconds)
    time.sleep(SECONDS)
    victim.set_clock(0)


# --- files -----------------------------------------------------------------------------------------------------------


def bit_flipped(pattern: str, victim: Victim, chance: random.Random) -> None:
    """Flip a bit of a file."""
    file, content = _chosen(victim, pattern, chance)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def block_zeroed(pattern: str, victim: Victim, chance: random.Random) -> None:
    """Overwrite 64 bytes of a file with zeros."""
    file, content = _chosen(victim, pattern, chance)
    start = chance.randrange(len(content))
    content[start : start + 64] = bytes(len(content[start : start + 64]))
    file.write_bytes(content)


def end_cut(pattern: str, victim: Victim, chance: random.Random) -> None:
    """Cut the last bytes of a file, within its last line."""
    file, content = _chosen(victim, pattern, chance)
    last = len(content) - (content.rstrip(b"\n").rfind(b"\n") + 1)
    file.write_bytes(content[: -chance.randint(1, max(1, last - 1))])


def emptied(pattern: str, victim: Victim, chance: random.Random) -> None:
    """Cut a file to nothing."""
    file, _ = _chosen(victim, pattern, chance)
    file.write_bytes(b"")


def newest_checkpoint_removed(victim: Victim, chance: random.Random) -> None:
    """Remove the newest checkpoint of a trial."""
    trials = sorted({path.parent for path in victim.sweep.glob("trials/*/step-*")})
    if not trials:
        raise NothingToHit
    shutil.rmtree(sorted(chance.choice(trials).glob("step-*"))[-1])


def locks_left(victim: Victim, _: random.Random) -> None:
    """Leave the lock of a dead writer beside the study, and half a file beside `sweep.json`."""
    lock = victim.sweep / "optuna.log.lock"
    if not lock.is_symlink():
        lock.symlink_to(victim.sweep / "optuna.log")
    (victim.sweep / "sweep.json.unfinished").write_bytes(b'{"name"')


def _there(thing: Thing | None) -> Thing:
    """A thing of the sweep's surroundings.

    Raises:
        NothingToHit: It has none.
    """
    if thing is None:
        raise NothingToHit
    return thing


def _found(victim: Victim, kind: str) -> list[psutil.Process]:
    if not (found := victim.processes(*PROCESSES[kind])):
        raise NothingToHit
    return found


def _signal(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _chosen(victim: Victim, pattern: str, chance: random.Random) -> tuple[Path, bytearray]:
    files = sorted(path for path in victim.sweep.glob(pattern) if path.is_file() and path.stat().st_size)
    if not files:
        raise NothingToHit
    file = chance.choice(files)
    return file, bytearray(file.read_bytes())


JUMPS = {"an hour on": 3600.0, "an hour back": -3600.0, "a year on": 3.15e7}
JOURNAL, STUDY, REPORTS = "tracking.jsonl", "optuna.log", "trials/*/reports.jsonl"
CHECKPOINTS = "trials/*/step-*/*"
PAUSE = (signal.SIGSTOP, signal.SIGCONT)
DRIVER, DISK, SERVER, POSTGRES = map(attrgetter, ("process", "disk", "record.server", "record.postgres"))
RUNNING: dict[str, Fault] = {
    **{f"{kind} killed": partial(one, kind, signal.SIGKILL) for kind in PROCESSES},
    **{f"{kind} paused": partial(paused, kind) for kind in PROCESSES},
    "worker terminated": partial(one, "worker", signal.SIGTERM),
    "all workers killed": partial(all_of, "worker"),
    "all Tune actors killed": partial(all_of, "Tune actor"),
    "driver killed": partial(driver_gets, signal.SIGKILL),
    "driver interrupted": partial(driver_gets, signal.SIGINT),
    "driver terminated": partial(driver_gets, signal.SIGTERM),
    "driver hung up": partial(driver_gets, signal.SIGHUP),
    "driver paused": partial(passing, DRIVER, *(methodcaller("send_signal", each) for each in PAUSE)),
    "process group terminated": partial(group_gets, signal.SIGTERM),
    "process group interrupted": partial(group_gets, signal.SIGINT),
    "everything killed": everything_killed,
    "server killed": partial(passing, SERVER, methodcaller("kill"), methodcaller("start")),
    "server paused": partial(passing, SERVER, *(methodcaller("signal", each) for each in PAUSE)),
    "PostgreSQL killed": partial(passing, POSTGRES, methodcaller("kill"), methodcaller("start")),
    "PostgreSQL paused": partial(passing, POSTGRES, methodcaller("hang"), methodcaller("go_on")),
    "database locked": database_locked,
    "disk full": partial(passing, DISK, methodcaller("fill"), methodcaller("free")),
    "disk full until the end": disk_full_until_the_end,
    "disk slow": partial(passing, DISK, methodcaller("freeze"), methodcaller("thaw")),
    "disk read-only": disk_read_only,
    **{f"clock jumps {name}": partial(clock_jumps, seconds) for name, seconds in JUMPS.items()},
}
RESTING: dict[str, Fault] = {
    **{
        f"bit flipped in {pattern}": partial(bit_flipped, pattern)
        for pattern in (JOURNAL, STUDY, REPORTS, CHECKPOINTS, "*.json", "tracking.position")
    },
    **{f"block zeroed in {name}": partial(block_zeroed, name) for name in (JOURNAL, STUDY, REPORTS, CHECKPOINTS)},
    **{f"end cut of {name}": partial(end_cut, name) for name in (JOURNAL, STUDY, REPORTS, CHECKPOINTS)},
    **{f"emptied {name}": partial(emptied, name) for name in ("sweep.json", "driver.json", "tracking.position")},
    "newest checkpoint removed": newest_checkpoint_removed,
    "locks left": locks_left,
}
