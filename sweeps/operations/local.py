"""The operations on this machine, with the MLflow store at a tracking URI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from sweeps.errors import UnknownName
from sweeps.operations.operations import Operations, Show

if TYPE_CHECKING:
    from sweeps.cleaning.policy import CleanOptions
    from sweeps.registry.register import RegisteredModel
    from sweeps.tracking.record import SweepRecord, SweepSummary, TrialRecord


class Local(Operations):
    """The operations on this machine."""

    def __init__(self, tracking_uri: str | None = None, tell: Callable[[str], None] = lambda _: None) -> None:
        """
        Args:
            tracking_uri: MLflow store or server; default: that of this process.
            tell: Receives messages about progress.
        """
        self._tracking_uri, self._tell = None if tracking_uri is None else str(tracking_uri), tell

    @property
    def uri(self) -> str:
        """The MLflow store. A store in an object store is copied to this machine, and the copy is updated at each
        access."""
        from sweeps.tracking.stored_record import local_store
        from sweeps.tracking.uris import default_uri

        return local_store(self._tracking_uri or default_uri())

    @property
    def address(self) -> str:
        from sweeps.texts.uri_passwords import redact_uri

        return redact_uri(self.uri)

    def sweeps(self) -> Sequence[SweepSummary]:
        from sweeps.tracking.reader import list_sweeps

        return list_sweeps(self.uri)

    def record(self, sweep: str) -> SweepRecord:
        from sweeps.tracking.reader import load_sweep

        try:
            return load_sweep(self.uri, sweep)
        except UnknownName as error:
            from sweeps.folders.driver_lock import is_held

            folder = Path("outputs", sweep)
            with suppress(OSError):  # it is another user's, or the name is not that of a file
                if is_held(folder):
                    raise UnknownName(
                        f"{error}; its driver runs in {folder}: try again in a moment, or, if it records the sweep in "
                        "another store, name that with --tracking-uri"
                    ) from error
            raise

    def stop(self, sweep: str, trial: str | None) -> SweepRecord:
        from sweeps.driver.stop import stop

        return stop(self.record(sweep), trial)

    def register(
        self, record: SweepRecord, trial: TrialRecord, model: str, alias: str | None, *, merged: bool
    ) -> RegisteredModel:
        from sweeps.registry.model_owners import rights_of_process
        from sweeps.registry.register import register

        tell, rights = lambda text: self._tell(f"registering: {text}"), rights_of_process()
        return register(record, trial, model, alias, merged=merged, tell=tell, rights=rights)

    def clean(
        self, sweeps: Sequence[str], *, dry_run: bool, **options: Unpack[CleanOptions]
    ) -> tuple[dict[str, Any], Show]:
        from sweeps.cleaning.cleaning import clean_by, print_cleaning

        cleaning = clean_by(self.uri, sweeps, dry_run=dry_run, **options)
        return cleaning.as_json(done=not dry_run), partial(print_cleaning, cleaning, cleaning.removals)

    def report(self, sweep: str, folder: Path | None) -> Path:
        record = self.record(sweep)  # before the imports, which take seconds

        from sweeps.report.page.report import make_report
        from sweeps.report.report_folder import make_folder, report_folder

        return make_report(record, make_folder(folder or report_folder(record)))
