"""Interface of the operations that the command line, the REST API and the pages offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:
    from rich.console import Console

    from sweeps.cleaning.policy import CleanOptions
    from sweeps.registry.register import RegisteredModel
    from sweeps.report.comparison import Comparison
    from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord
    from sweeps.tracking.trial_logs import LogPart

Show = Callable[["Console"], None]


class Reading(ABC):
    """Reads recorded sweeps. Modules are imported late, so that importing this one is cheap."""

    @abstractmethod
    def record(self, sweep: str) -> SweepRecord:
        """Return the record of a sweep."""

    def trial(self, sweep: str, trial: str, *, settled: bool = False) -> dict[str, Any]:
        """Return the document of ``show --trial --json``; see ``SweepRecord.settled`` for ``settled``."""
        from sweeps.plan.export import choose
        from sweeps.report.trial_details import trial_document

        record = self.record(sweep).settled() if settled else self.record(sweep)
        return trial_document(record, choose(record, trial))

    def log_workers(self, record: SweepRecord, trial: TrialRecord) -> list[int]:
        """Return the ranks of a trial's workers that have a log."""
        from sweeps.tracking.trial_logs import TrialLogs

        return TrialLogs(record, trial).workers()

    def log_part(self, record: SweepRecord, trial: TrialRecord, worker: int, position: int) -> LogPart:
        """Return a part of a worker's log."""
        from sweeps.tracking.trial_logs import TrialLogs

        return TrialLogs(record, trial).read(worker, position)

    def config_text(self, record: SweepRecord) -> str | None:
        """Return a sweep's config as YAML; None if it is not recorded."""
        from sweeps.report.report_data import recorded_config

        return recorded_config(record)

    def compare(self, sweeps: Sequence[str]) -> Comparison:
        """Compare sweeps of the same metric."""
        from sweeps.report.comparison import compare_sweeps

        return compare_sweeps([self.record(each) for each in sweeps], self.config_text)

    def exported(self, record: SweepRecord, trial: TrialRecord, file: Path) -> str:
        """Return the text of a config file that trains one trial."""
        from sweeps.plan.export import exported

        return exported(record, trial, file)


class Operations(Reading):
    """Reads and changes recorded sweeps; the verbs that train are separate."""

    is_remote = False
    """Whether the operations run in a service instead of this process."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Address of the store or the service, without passwords."""

    @abstractmethod
    def sweeps(self) -> Sequence[SweepSummary]:
        """Return all sweeps, newest first."""

    @abstractmethod
    def stop(self, sweep: str, trial: str | None) -> SweepRecord | str:
        """End a sweep, or one of its trials, and wait until it has ended.

        Returns:
            The sweep's record afterwards; the final state of its job, such as ``cancelled``, if it has none.
        """

    @abstractmethod
    def register(
        self, record: SweepRecord, trial: TrialRecord, model: str, alias: str | None, *, merged: bool
    ) -> RegisteredModel:
        """Register a trial's checkpoint as a new version of a model."""

    @abstractmethod
    def clean(
        self, sweeps: Sequence[str], *, dry_run: bool, **options: Unpack[CleanOptions]
    ) -> tuple[dict[str, Any], Show]:
        """Remove checkpoints; return the document of ``clean --json``, and a function that prints it as a table."""

    @abstractmethod
    def report(self, sweep: str, folder: Path | None) -> Path:
        """Write the report of a sweep; return the path of its page."""


class Schedules(ABC):
    """Reads and pauses schedules; results are documents of ``--json``."""

    @abstractmethod
    def schedules(self) -> list[dict[str, Any]]:
        """Return all schedules with their last and next firings."""

    @abstractmethod
    def firings(self, names: Sequence[str], count: int) -> list[dict[str, Any]]:
        """Return the next firings of the named schedules, or of all."""

    @abstractmethod
    def versions(self, name: str) -> list[dict[str, Any]]:
        """Return the saved versions of a schedule, newest first."""

    @abstractmethod
    def nights(self, name: str) -> list[dict[str, Any]]:
        """Return the results of a schedule's nights, oldest first."""

    @abstractmethod
    def pause(self, name: str, *, is_paused: bool) -> object:
        """Pause a schedule, or let it fire again."""
