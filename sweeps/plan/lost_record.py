"""Record of a sweep that its tracking store has lost, because the store's database was removed or replaced. The
journal in the sweep's folder has all of it, so that ``resume`` records the sweep again."""

from __future__ import annotations

from pathlib import Path

from sweeps import constants
from sweeps.compose import Composition
from sweeps.errors import UnknownName, UserError
from sweeps.plan.saved_sweep import saved_document
from sweeps.plan.unstarted import is_unstarted
from sweeps.texts.uri_passwords import redact_uri, without_credentials
from sweeps.tracking.journal import Journal
from sweeps.tracking.reader import load_sweep, record_of
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.store import RawRun, fetch_runs
from sweeps.tracking.sweep_run import own_start
from sweeps.tracking.uris import sqlite_path, sqlite_uri
from sweeps.tracking.values import now_ms


def record_to_resume(uri: str, sweep: str, folder: Path | None = None, location: str | None = None) -> SweepRecord:
    """Return the record of a sweep to resume. If the store has lost the sweep, the record has no trials, and the driver
    delivers the whole journal again.

    Args:
        uri: Tracking URI.
        sweep: Name of the sweep.
        folder: Folder of the sweep, if it is not where sweeps are by default.
        location: URI of that folder if it is in an object store, and ``folder`` its copy on this machine.

    Raises:
        UnknownName: The store has no such sweep, and there is no folder of one in which the search began.
        UserError: A person has deleted the sweep's run in MLflow, or the sweep is recorded in another store.
    """
    folder = (folder or Path(f"outputs/{sweep}")).expanduser().absolute()
    started_ms = own_start(folder)
    try:
        return load_sweep(uri, sweep, started_ms)
    except UnknownName:
        if not Journal.is_in(folder) or is_unstarted(folder):
            raise
    document = saved_document(sweep, folder)
    saved = Composition.from_json(document["composition"]).config.tracking.uri
    asked, recorded = _place(uri, Path.cwd()), _place(saved, Path(document["working_folder"]))
    if asked != recorded:
        raise UserError(
            f"there is no sweep {sweep!r} in {asked}; its folder {folder} was recorded in {recorded}: name that store "
            "with --tracking-uri or MLFLOW_TRACKING_URI"
        )
    tags = {constants.TAG_SWEEP: sweep, constants.TAG_KIND: "sweep"}
    for run in (each for each in fetch_runs(uri, tags, deleted=True) if started_ms in (None, each.started)):
        raise UserError(
            f"{sweep}: its run in MLflow was deleted; restore it with `mlflow runs restore --run-id {run.run_id}` (or "
            "its experiment, if that was deleted), and try again"
        )
    tags |= {constants.TAG_STATE: "interrupted", constants.TAG_FOLDER: location or str(folder)}
    now = now_ms()
    lost = RawRun(
        run_id="", experiment_id="", experiment="", status="KILLED", started=now, ended=now, tags=tags, params={}
    )
    return record_of(uri, lost, [])


def _place(uri: str, working_folder: Path) -> str:
    """Return the same URI, without credentials, for all URIs of a store."""
    if (path := sqlite_path(uri)) is None:
        return without_credentials(redact_uri(uri)).rstrip("/")
    return sqlite_uri(((working_folder if working_folder.is_dir() else Path.cwd()) / path).resolve())
