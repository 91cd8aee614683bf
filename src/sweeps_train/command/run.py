"""A program as a trial: starts it, reports its metrics while it runs, and ends it when the trial stops.

All workers of a trial run this, and the first one leads: it reads the metrics and tells the others when to report and
when to stop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray.train.collective import broadcast_from_rank_zero

from sweeps_train.command.checkpoints import put_back
from sweeps_train.command.command_line import command_line
from sweeps_train.command.config_files import file_name, write_files
from sweeps_train.command.failure import find_cause
from sweeps_train.command.launch import Place
from sweeps_train.command.lead import Lead, Signal
from sweeps_train.command.placeholders import FILES, Template, as_text, filled
from sweeps_train.command.program import Program, describe_status
from sweeps_train.command.sources import with_own_store
from sweeps_train.config import CommandConfig
from sweeps_train.config.better import as_objectives
from sweeps_train.config.command import CommandTask
from sweeps_train.frameworks.ray_train import StopRequested, TrialTrainFnUtils
from sweeps_train.reports.reporter import Reporter
from sweeps_train.workers.own_folder import START_FOLDER, as_seen_from_anywhere, hint, own_folder, start_folder


@dataclass(frozen=True)
class TrialIdentity:
    """Names of a trial, for placeholders."""

    sweep: str
    trial: str
    """Id of the trial: ``0003``, ``s1-0003`` in a stage, ``0003r2`` for a repeat."""
    attempt: int

    @property
    def number(self) -> int:
        """Number of the trial within its search or stage; that of the repeated trial for a repeat."""
        return int(self.trial.rpartition("-")[2].partition("r")[0])


class ProgramFailed(RuntimeError):
    """Raised if a program has ended with an error, or without a report."""


def run_command(
    config: CommandConfig,
    *,
    reporter: Reporter | None,
    checkpoint_folder: str,
    metric: str | Sequence[str],
    mode: str | Sequence[str],
    identity: TrialIdentity,
) -> None:
    """Run a program until it ends or the reporter asks to stop. Every worker of a Ray Train group calls it, with
    arguments as for ``train``.

    Raises:
        ProgramFailed: The program has ended with an error, or without a report.
        OSError: The program cannot be started, or one of its files cannot be read or written.
    """
    utils = TrialTrainFnUtils(config.checkpoint, reporter, Path(checkpoint_folder), as_objectives(metric, mode))
    place = Place.current()
    folder = own_folder(checkpoint_folder)
    checkpoint = _checkpoint(utils)
    lookup = _values(config, place, folder, identity, checkpoint).__getitem__
    works_in = folder
    if config.task.working_folder is not None:
        works_in = start_folder() / Path(Template(config.task.working_folder).text(lookup)).expanduser()
    if place.rank == 0:
        _prepare(config.task, folder, works_in, checkpoint, lookup)
    broadcast_from_rank_zero(1 if place.rank == 0 else None)  # the files are there
    lead = Lead(config, utils, folder, works_in, lookup) if place.rank == 0 else None
    program = None
    try:
        if place.starts(config.task.processes):
            program = _start(config, place, folder, works_in, lookup, lead.take_line if lead is not None else None)
        _follow(utils, lead, program)
        if program is not None:
            _check_end(program, place, is_in_own_folder=config.task.working_folder is None)
    except StopRequested:
        return
    finally:
        if program is not None:
            program.end()
        if lead is not None and program is not None:
            lead.save_last(ended_well=program.poll() == 0)
    if lead is not None and not utils.has_reported:
        raise ProgramFailed(lead.why_silent())
    utils.end()


def _prepare(
    task: CommandTask, folder: Path, works_in: Path, checkpoint: str | None, lookup: Callable[[str], Any]
) -> None:
    """Put a program's newest checkpoint back if it looks for one itself, and write its config files."""
    if checkpoint is not None and task.checkpoints is not None and task.checkpoints.put_back:
        where = works_in / Template(task.checkpoints.folder).text(lookup)
        put_back(Path(checkpoint), where, task.checkpoints.pattern, own=folder)
    write_files(task.files, folder, lookup)  # last: their names may look like those of checkpoints


def _follow(utils: TrialTrainFnUtils, lead: Lead | None, program: Program | None) -> None:
    """Report together with the other workers until rank 0's program has ended.

    Raises:
        StopRequested: The trial is to stop.
    """
    while True:
        if lead is None and program is not None and program.poll():
            return  # others may wait for this one; the first worker's output is read to its end instead
        signal = broadcast_from_rank_zero(lead.next_signal(program) if lead is not None else None)
        if signal == Signal.END:
            return
        if signal == Signal.STOP:
            raise StopRequested
        if signal == Signal.REPORT:
            if lead is not None:
                lead.report()
            else:
                utils.report_at(None, None)


def _check_end(program: Program, place: Place, *, is_in_own_folder: bool) -> None:
    """Wait until the program ends.

    Raises:
        ProgramFailed: The program ended with an error.
    """
    if (status := program.wait()) != 0:
        program.finish_output()
        worker = f" on worker {place.rank}" if place.num_workers > 1 else ""
        cause, last_lines = find_cause([*program.last_lines])
        found = hint(last_lines, start_folder()) if is_in_own_folder else ""
        cause = f"{cause}; {found}" if found else cause
        lines = "\n".join(("The last lines of its output:", *last_lines))
        raise ProgramFailed(f"task.command={program.name}: {describe_status(status)}{worker}: {cause}\n{lines}")


def _checkpoint(utils: TrialTrainFnUtils) -> str | None:
    """Return the file or folder from which the program continues."""
    return None if utils.newest is None else str(min(utils.newest.iterdir()).absolute())


def _values(
    config: CommandConfig, place: Place, folder: Path, identity: TrialIdentity, checkpoint: str | None
) -> dict[str, Any]:
    """Return the values of all placeholders; config values take precedence."""
    files = {f"{FILES}{name}": str(folder / file_name(name, file)) for name, file in config.task.files.items()}
    return {
        "trial.number": identity.number,
        "trial.id": identity.trial,
        "trial.name": f"{identity.sweep}-{identity.trial}",
        "trial.folder": str(folder),
        "trial.attempt": identity.attempt,
        "start_folder": str(start_folder()),
        "checkpoint": checkpoint,
        **asdict(place),
        **files,
        **config.values,
    }


def _start(
    config: CommandConfig,
    place: Place,
    folder: Path,
    works_in: Path,
    lookup: Callable[[str], Any],
    on_line: Callable[[str], None] | None,
) -> Program:
    task, start = config.task, start_folder()
    environment = place.environment(task.processes) | {START_FOLDER: str(start)}
    if task.working_folder is None:  # what Python finds in the working folder
        paths = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        environment["PYTHONPATH"] = os.pathsep.join(str(start / each) for each in paths)
    # The programs of the Python environment in which Sweeps runs come first.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    environment = with_own_store({**environment, "PYTHONUNBUFFERED": "1"}, task.read, folder)
    for name, value in filled(task.environment, lookup).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = as_text(value)
    words = command_line(task, lookup)
    return Program(
        [_from_anywhere(word, start) for word in words] if task.working_folder is None else words,
        environment=environment,
        grace_s=task.grace_s,
        folder=str(works_in),
        on_line=on_line,
    )


def _from_anywhere(word: str, start: Path) -> str:
    """Return a word of a command line in which a file of the start folder is replaced by its absolute path: ``a.py``,
    ``--data=a.csv``, or ``data=a.csv`` as in Hydra's overrides."""
    found = str(as_seen_from_anywhere(word, start))
    name, equals, value = word.partition("=")
    if equals and found == word:  # not a file such as year=2026/a.csv
        return f"{name}={as_seen_from_anywhere(value, start)}"
    return found
