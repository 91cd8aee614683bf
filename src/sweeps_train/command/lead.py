"""Rank 0's view of a program: its metrics and checkpoints, and the reports that are due."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from sweeps_train.command.checkpoints import CheckpointWatch, ProgramCheckpoint, put_into, set_aside
from sweeps_train.command.measurements import Measured, Measurements
from sweeps_train.command.output import Record, parsers, record_in
from sweeps_train.command.placeholders import Template
from sweeps_train.command.program import Program
from sweeps_train.command.sources import file_sources
from sweeps_train.config import CommandConfig
from sweeps_train.frameworks.ray_train import FunctionProgress, TrialTrainFnUtils
from sweeps_train.reports.reporter import Stop

POLL_S = 0.5
"""Seconds between two checks of the program's files, of its checkpoints, and for a request to stop."""
READ_WITHIN_S = 1.0
"""Maximum seconds between printing and reading a line on a busy machine. A line that is read within this time after a
checkpoint was written may have been printed before it."""
ALIVE_EVERY_S = 30.0
"""Minimum seconds between two keep-alive events for a program that prints but reports no metrics."""


class Signal(IntEnum):
    """Instruction of rank 0 to all workers."""

    WAIT = 0
    REPORT = 1
    STOP = 2
    END = 3


class Lead:
    """Reads the metrics and checkpoints of a program, and decides what all workers do next."""

    def __init__(
        self,
        config: CommandConfig,
        utils: TrialTrainFnUtils,
        folder: Path,
        works_in: Path,
        lookup: Callable[[str], Any],
    ) -> None:
        """Begin to read a program. ``folder`` is the trial's; paths are relative to ``works_in``, the program's working
        folder."""
        task = config.task
        self._config, self._utils = config, utils
        self._parsers = parsers(task.read)
        self._records: Queue[tuple[Record, float]] = Queue()
        is_resumed = utils.progress.evaluations > 0
        names = {new: own for own, new in task.rename.items()}
        needed = [names.get(each, each) for each in (*config.objectives, *config.limited)]
        self._sources = file_sources(task.read, folder, works_in, lookup, needed, is_resumed=is_resumed)
        self._measurements = Measurements(
            objectives=config.objectives,
            limited=config.limited,
            rename=task.rename,
            step=task.step,
            done=utils.progress.step if is_resumed else None,
            note=utils.reporter.note,
        )
        self._watch: CheckpointWatch | None = None
        if task.checkpoints is not None:
            where = works_in / Template(task.checkpoints.folder).text(lookup)
            self._watch = CheckpointWatch(task.checkpoints, where)
        self._due: deque[tuple[Measured, Path | None]] = deque()
        """Reports that all workers are to make together, and the program's checkpoint of this step if there is one."""
        self._undone: list[Measured] = []
        """Reports that wait for a checkpoint, if every report needs one."""
        self._history: list[tuple[Measured, FunctionProgress]] = []
        """Measurements since the last checkpoint, with the training's position at each."""
        self._start = utils.progress
        """Position at the last checkpoint, or at the start of this attempt."""
        self._saved: ProgramCheckpoint | None = None
        """Checkpoint whose report is still awaited."""
        self._written = 0.0 if self._watch is None else self._watch.newest
        """Unix time at which the newest checkpoint so far was written."""
        self._aside = folder / ".sweeps-checkpoint"
        self._has_noted_removal = False
        self._looked = self._alive = time.monotonic()
        self._has_printed = False

    def take_line(self, line: str) -> None:
        """Process a line of output; called by other threads."""
        self._has_printed = True
        if record := record_in(line, self._parsers):
            self._records.put((record, time.time()))

    def next_signal(self, program: Program | None) -> Signal:
        """Wait up to ``POLL_S`` for the next instruction, and return it.

        Raises:
            ValueError: The program's step is not a whole number.
        """
        assert program is not None, "the first worker always starts a process"
        if self._due:
            return Signal.REPORT
        status = program.poll()
        if status is not None:
            program.finish_output()
        if status is not None or time.monotonic() - self._looked >= POLL_S:
            self._looked = time.monotonic()
            for source in self._sources:
                for record in source.read(at_end=status is not None):
                    self._records.put((record, time.time()))
        self._take_records(wait=status is None)
        self._take_only_result(status)
        if not self._due:
            self._look_for_checkpoints(None if status is None else status == 0)
        if self._due:
            return Signal.REPORT
        if self._utils.reporter.should_stop() != Stop.NO:
            return Signal.STOP
        if status is not None:
            return Signal.END
        self._show_life()
        return Signal.WAIT

    def report(self) -> None:
        """Make the report that is due, together with the other workers."""
        made, checkpoint = self._due.popleft()
        self._utils.report_at((made.step, made.metrics), None if checkpoint is None else _saving(checkpoint))
        self._remember(made)

    def save_last(self, *, ended_well: bool) -> None:
        """Save the checkpoints that were complete when the program ended."""
        discarded = self._utils.reporter.should_stop() == Stop.DISCARD
        if not discarded and not self._config.saves_at_reports:
            self._look_for_checkpoints(ended_well)

    def why_silent(self) -> str:
        """Return the error message for a program that ended without a report."""
        names = sorted(self._measurements.names)
        found = (
            f"it reported only {', '.join(names)}"
            if names
            else "no metric was found in the sources of task.read (output is read line by line)"
        )
        wanted = [name for name in (*self._config.objectives, *self._config.limited) if name not in names]
        return (
            f"search.metric={', '.join(wanted or self._config.objectives)}: the program ended without reporting it; "
            f"{found}. See task.read, task.rename and its output in the trial's log"
        )

    # --- metrics ----------------------------------------------------------------------------------------------

    def _take_records(self, *, wait: bool) -> None:
        """Process records until a report is due."""
        deadline = time.monotonic() + (POLL_S if wait else 0.0)
        while not self._due:
            try:
                record, arrived = self._records.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                return
            measured = replace(self._measurements.take(record), time=arrived)
            if measured.is_report:
                self._add_report(measured)
                self._pair()
            else:
                self._log(measured)

    def _take_only_result(self, status: int | None) -> None:
        """Make a report due for a program that ended successfully and logged all its metrics at step 0."""
        has_report = self._utils.progress.evaluations or self._undone or self._due
        if status == 0 and not has_report and (result := self._measurements.only_result) is not None:
            self._add_report(result)

    def _add_report(self, measured: Measured) -> None:
        if self._config.saves_at_reports:
            self._undone.append(measured)
        else:
            self._due.append((measured, None))

    def _log(self, measured: Measured) -> None:
        self._remember(measured)
        self._alive = time.monotonic()
        self._utils.reporter.log(replace(self._utils.progress, step=measured.step), measured.metrics)

    def _show_life(self) -> None:
        """Post an empty log if the program has printed something, so that it does not count as hanging."""
        if self._has_printed and time.monotonic() - self._alive >= ALIVE_EVERY_S:
            self._has_printed, self._alive = False, time.monotonic()
            self._utils.reporter.log(self._utils.progress, {})

    # --- checkpoints ------------------------------------------------------------------------------------------

    def _remember(self, measured: Measured) -> None:
        """Keep the metrics with which a later checkpoint is matched."""
        if self._watch is not None and not self._config.saves_at_reports:
            self._history.append((measured, self._utils.progress))

    def _look_for_checkpoints(self, ended_well: bool | None) -> None:
        """Process the program's new checkpoints; ``ended_well`` is None while the program runs."""
        found = self._watch.find(ended_well=ended_well) if self._watch is not None else []
        for checkpoint in found:
            if self._named_step(checkpoint) is None and checkpoint.written < self._written <= time.time():
                continue  # an older one has got another name: best.pt, or the next one of a rotation
            self._written = max(self._written, checkpoint.written)
            if self._config.saves_at_reports:
                self._saved = checkpoint
                if self._named_step(checkpoint) is not None:
                    self._pair()
            else:
                self._save_pending()
                self._saved = checkpoint
        if self._config.saves_at_reports:
            self._pair()  # with a checkpoint that was found together with the one reported last
            if ended_well and self._undone and not self._due:
                self._due.append((self._take_undone(len(self._undone)), None))
        elif self._saved is not None and (ended_well is not None or self._is_past(self._saved)):
            self._save_pending()

    def _is_past(self, checkpoint: ProgramCheckpoint) -> bool:
        """Whether the report of a checkpoint's step was sent or can no longer come."""
        step = self._named_step(checkpoint)
        return step is None or self._measurements.step >= step

    def _named_step(self, checkpoint: ProgramCheckpoint) -> int | None:
        """Return the step in a checkpoint's name; None if only the time at which it was written tells its step."""
        return None if self._measurements.counts_records else checkpoint.step

    def _save_pending(self) -> None:
        """Save the checkpoint found last, with the metrics of its step."""
        checkpoint, self._saved = self._saved, None
        if checkpoint is None:
            return
        step, metrics, progress = self._position(checkpoint)
        if self._utils.newest_step is not None and step < self._utils.newest_step:  # the later one of a step counts
            return
        self._start = replace(progress, step=step)
        self._history = [each for each in self._history if each[0].step >= step]
        if (aside := self._set_aside(checkpoint)) is not None:
            self._utils.add_checkpoint(self._start, metrics, _saving(aside))

    def _set_aside(self, checkpoint: ProgramCheckpoint) -> Path | None:
        """Copy or move a checkpoint out of the program's reach, and return where it is; None, with a note, if the
        program has removed it."""
        settings = self._config.task.checkpoints
        aside = set_aside(checkpoint, self._aside, move=settings is not None and settings.move)
        if aside is None and not self._has_noted_removal:
            self._has_noted_removal = True
            self._utils.reporter.note(
                f"task.checkpoints: the program removed {checkpoint.path.name} before it was copied; let it keep more "
                "checkpoints, or report its metrics more often"
            )
        return aside

    def _position(self, checkpoint: ProgramCheckpoint) -> tuple[int, dict[str, float] | None, FunctionProgress]:
        """Return a checkpoint's step, the metrics reported at it, and the training's position there."""
        step = self._named_step(checkpoint)
        if step is None:
            before = [each for each in self._history if each[0].time <= checkpoint.written + READ_WITHIN_S]
            step = before[-1][0].step if before else self._start.step
        else:
            before = [each for each in self._history if each[0].step <= step]
        metrics = next((each.metrics for each, _ in reversed(before) if each.is_report and each.step == step), None)
        return step, metrics, before[-1][1] if before else self._start

    def _pair(self) -> None:
        """Make a report due together with its checkpoint, and log earlier reports that have none."""
        saved = self._saved
        if saved is None or self._due:
            return
        step = self._named_step(saved)
        if step is None:  # a report that was printed later belongs to the next one
            fitting = [each for each in self._undone if each.time <= saved.written + READ_WITHIN_S] or self._undone
        else:
            fitting = [each for each in self._undone if each.step <= step]
        if fitting:
            self._saved = None
            if (aside := self._set_aside(saved)) is not None:  # otherwise the reports wait for the next one
                self._due.append((self._take_undone(len(fitting)), aside))

    def _take_undone(self, number: int) -> Measured:
        """Return the last of the first ``number`` reports that wait for a checkpoint, and log those before it."""
        *skipped, last = self._undone[:number]
        self._undone = self._undone[number:]
        for each in skipped:
            self._log(replace(each, is_report=False))
        return last


def _saving(aside: Path) -> Callable[[Path], None]:
    """Return a function that moves a checkpoint that was set aside into a folder."""
    return partial(put_into, aside, move=True)
