"""The verb ``logs``: output of the workers of a sweep's trials, even while they run."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import verb
from sweeps.cli.output import say
from sweeps.cli.source import sweep_operations
from sweeps.errors import TrackingUnreachable, UnknownName, UserError

if TYPE_CHECKING:
    from sweeps.operations.operations import Operations
    from sweeps.tracking.record import SweepRecord, TrialRecord

POLL_EVERY_S = 1.0


@verb("logs")
@click.argument("sweep")
@click.option("--trial", metavar="ID", help="Only the logs of this trial.")
@click.option("--worker", metavar="N", type=click.IntRange(min=0), help="Only the logs of the worker of this rank.")
@click.option("--lines", "-n", metavar="N", type=click.IntRange(min=1), help="Only the last N lines of each log.")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the sweep has ended, or Ctrl-C.")
@sweep_operations
def logs(
    sweep: str, trial: str | None, worker: int | None, lines: int | None, follow: bool, operations: Operations
) -> None:
    """Show the output of the workers of a sweep's trials, with their child processes and crashes.

    Works while the sweep runs, and from MLflow when its folder is gone. Secrets are hidden.
    """
    _Printer(operations, sweep, trial, worker, lines).run(follow=follow)


class _Printer:
    """Prints the new parts of logs."""

    def __init__(
        self, operations: Operations, sweep: str, trial: str | None, worker: int | None, lines: int | None
    ) -> None:
        self._operations, self._sweep = operations, sweep
        self._trial, self._worker, self._lines = trial, worker, lines
        self._positions: dict[tuple[str, int], int] = {}
        self._complete: set[str] = set()

    def run(self, *, follow: bool) -> None:
        record = self._operations.record(self._sweep)
        self._print(record)
        while follow and self._is_running(record):
            time.sleep(POLL_EVERY_S)
            try:
                record = self._operations.record(self._sweep)
                self._print(record)
            except TrackingUnreachable as error:
                say(f"{error}; trying again")
        if not self._positions:
            raise UserError(self._describe_missing(record))

    def _is_running(self, record: SweepRecord) -> bool:
        if self._trial is None:
            return record.status == "running"
        return record.status == "running" and self._chosen(record)[0].state == "running"

    def _chosen(self, record: SweepRecord) -> list[TrialRecord]:
        if self._trial is None:
            return record.all_trials
        from sweeps.plan.export import choose

        return [choose(record, self._trial)]

    def _print(self, record: SweepRecord) -> None:
        for trial in self._chosen(record):
            if trial.trial in self._complete:
                continue
            workers = self._operations.log_workers(record, trial)
            for worker in workers:
                if self._worker in (None, worker):
                    self._print_worker(record, trial, worker, alone=len(workers) == 1 or self._worker is not None)
            if trial.state != "running":
                self._complete.add(trial.trial)

    def _print_worker(self, record: SweepRecord, trial: TrialRecord, worker: int, *, alone: bool) -> None:
        key = trial.trial, worker
        is_first = key not in self._positions
        names = [*([f"trial {trial.trial}"] if self._trial is None else []), *([] if alone else [f"worker {worker}"])]
        prefix = f"{' '.join(names)} | " if names else ""
        found: list[str] = []
        more = True
        while more:
            part = self._operations.log_part(record, trial, worker, self._positions.get(key, 0))
            more = part.more and part.position > self._positions.get(key, 0)
            self._positions[key] = part.position
            found += part.text.splitlines()
            if self._lines is not None and is_first:
                found = found[-self._lines :]
            elif more:
                _write(prefix, found)
                found = []
        _write(prefix, found)

    def _describe_missing(self, record: SweepRecord) -> str:
        if self._worker is not None:
            trials = self._chosen(record)
            known = sorted({worker for trial in trials for worker in self._operations.log_workers(record, trial)})
            if known:
                whose = record.sweep if self._trial is None else f"trial {trials[0].trial}"
                raise UnknownName(
                    f"--worker={self._worker}: {whose} has logs of the workers {', '.join(map(str, known))}"
                )
        if record.status == "running":
            return (
                f"{record.sweep} has no logs that can be read here yet: its workers have not started, or its folder is "
                "on another machine; use --server with the service there, or try again when the sweep has ended"
            )
        return f"{record.sweep} has no logs: its workers never started, or an older version of Sweeps recorded it"


def _write(prefix: str, lines: list[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{prefix}{line}\n")
    sys.stdout.flush()
