"""Schedules for cron and systemd, which start ``schedule run`` on this machine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sweeps.config import SweepConfig
from sweeps.config.schedule import Schedule
from sweeps.launch.calendar import calendar_events, plain_fields
from sweeps.launch.submission import killed_after_s

SERVICE = """\
[Unit]
Description=The sweep of the schedule {name}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
WorkingDirectory={folder}
ExecStart={command}
# Ctrl-C: the trials save their state, and `resume` continues the sweep.
KillSignal=SIGINT
KillMode=mixed
TimeoutStopSec={killed_after}
SuccessExitStatus=130
{limit}"""
TIMER = """\
[Unit]
Description=The schedule {name}

[Timer]
{events}
Persistent={persistent}
RandomizedDelaySec={jitter:g}
Unit=sweeps-{name}.service

[Install]
WantedBy=timers.target
"""
NOT_OVERLAPPING = {("stop_old", "cron"), ("stop_old", "systemd"), ("queue", "systemd"), ("queue", "kubernetes")}
"""Settings of ``overlap`` that a kind of scheduler treats as ``skip``."""


def cron_lines(schedule: Schedule, config: SweepConfig, config_dirs: Sequence[Path]) -> str:
    """Return the lines for a crontab. ``config`` is that of the schedule's sweeps.

    Raises:
        UserError: The cron line has a feature that cron does not support.
    """
    fields = " ".join(plain_fields(schedule.cron))
    folder = Path.cwd()
    wait = "" if schedule.overlap == "queue" else "--nonblock "
    kill = f"--kill-after={killed_after_s(config)}"
    limit = "" if (seconds := _limit(schedule)) is None else f"timeout --signal=INT {kill} {seconds:g} "
    lock = shlex.quote(f".{schedule.name}.lock")
    command = f"cd {shlex.quote(str(folder))} && flock {wait}{lock} {limit}{shlex.join(_words(schedule, config_dirs))}"
    log = shlex.quote(f"{schedule.name}.log")
    # A percent sign ends the command in a crontab.
    line = f"{fields} {command} >> {log} 2>&1".replace("%", "\\%")
    return f"# The schedule {schedule.name} of Sweeps.\nCRON_TZ={schedule.timezone}\n{line}\n"


def systemd_units(schedule: Schedule, config: SweepConfig, config_dirs: Sequence[Path]) -> dict[str, str]:
    """Return the texts of a service and its timer by their file names. ``config`` is that of the schedule's sweeps.

    Raises:
        UserError: The cron line has a feature that systemd does not support.
    """
    events = calendar_events(schedule.cron, schedule.timezone)
    name = f"sweeps-{schedule.name}"
    seconds = _limit(schedule)
    service = SERVICE.format(
        name=schedule.name,
        folder=str(Path.cwd()).replace("%", "%%"),
        command=_systemd_command(_words(schedule, config_dirs)),
        killed_after=killed_after_s(config),
        limit="" if seconds is None else f"RuntimeMaxSec={seconds:g}\n",
    )
    timer = TIMER.format(
        name=schedule.name,
        events="\n".join(f"OnCalendar={event}" for event in events),
        persistent=str(schedule.missed != "none").lower(),
        jitter=schedule.jitter_s,
    )
    return {f"{name}.service": service, f"{name}.timer": timer}


def not_exported(schedule: Schedule, kind: str) -> list[str]:
    """Return one sentence for each setting of the schedule that the other scheduler does not support."""
    notes = []
    if schedule.nights is not None:
        notes.append("nights: ignored; only `serve` lets a night learn from earlier ones, and compares models")
    if kind == "kuberay":
        notes.append(f"overlap={schedule.overlap}: every firing starts a sweep, also while the last one runs")
    elif (schedule.overlap, kind) in NOT_OVERLAPPING:
        notes.append(f"overlap={schedule.overlap}: a firing is skipped while the last sweep runs")
    if kind == "kuberay" and schedule.missed != "all":
        notes.append(f"missed={schedule.missed}: all missed firings are run later, at once")
    elif kind != "kuberay" and (schedule.missed == "all" or (schedule.missed == "latest" and kind == "cron")):
        done = "are not run later" if kind == "cron" else "are run later, together as one"
        notes.append(f"missed={schedule.missed}: missed firings {done}")
    if schedule.jitter_s and kind != "systemd":
        notes.append(f"jitter_s={schedule.jitter_s:g}: every firing starts without a delay")
    if schedule.window is not None and schedule.window.hours is None:
        notes.append("window: its start and end are ignored; window.hours has an effect")
    if kind == "cron":
        notes.append("CRON_TZ holds for all later lines of a crontab: put these at its end")
        notes.append("CRON_TZ is read by cronie; Debian's cron ignores it, and uses the time zone of the machine")
    return notes


def _limit(schedule: Schedule) -> float | None:
    """Return the seconds after which a sweep is ended."""
    hours = schedule.window.hours if schedule.window is not None else None
    return None if hours is None else hours * 3600


def _words(schedule: Schedule, config_dirs: Sequence[Path]) -> list[str]:
    folders = [f"--config-dir={folder.expanduser().absolute()}" for folder in config_dirs]
    return [sys.executable, "-m", "sweeps", "schedule", "run", schedule.name, *folders]


def _systemd_command(words: Sequence[str]) -> str:
    """Return a command in systemd's notation: quoted as for a shell, but a backslash begins an escape within quotes
    too, and ``%`` and ``$`` are doubled. systemd expands no variables in the program's own path."""
    program, *arguments = (shlex.quote(word).replace("\\", "\\\\").replace("%", "%%") for word in words)
    return " ".join([program, *(argument.replace("$", "$$") for argument in arguments)])
