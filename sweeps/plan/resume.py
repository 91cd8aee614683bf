"""The plan with which ``resume`` and ``extend`` continue an earlier sweep, from its folder and its record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeps.compose import Composition
from sweeps.constants import TAG_FOLDER
from sweeps.errors import AlreadyDone, ConfigError, UserError
from sweeps.folders.driver_lock import driver_was_killed, is_held
from sweeps.folders.sweep_folder import SWEEP_FILE
from sweeps.plan.complete_sweep import is_complete, may_train, with_undelivered
from sweeps.plan.extend import extended
from sweeps.plan.plan import Plan, all_scalings, check_code_and_data
from sweeps.plan.saved_sweep import saved_document
from sweeps.plan.stage import planned_stages
from sweeps.search.study_version import check_study
from sweeps.storage.location import is_remote, working_copy
from sweeps.storage.object_store import checked_store
from sweeps.storage.state_mirror import refresh
from sweeps.tracking.journal import check_journal
from sweeps.tracking.reader import HEARTBEAT_TIMEOUT_S, load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.sweep_run import own_start
from sweeps.tracking.uris import absolute
from sweeps.validate.config_checks import Approve, check_sweep


@dataclass(frozen=True, kw_only=True)
class ReopenedPlan(Plan):
    """Plan with which an earlier sweep continues."""

    changes: Mapping[str, Any]
    """Changes of ``extend`` to the saved sweep, by dotted path."""
    saved: Any
    """Composition of the saved sweep without the changes, as in its file."""
    record: SweepRecord
    """Record of the sweep when the plan was made."""


def reopened(
    record: SweepRecord, changes: Mapping[str, Any], folder: Path | None = None, approve: Approve | None = None
) -> ReopenedPlan:
    """Make the plan with which an earlier sweep continues, with the changes of ``extend`` by dotted path. Its folder is
    the recorded one, unless the current path is given.

    Raises:
        UserError: The sweep's folder is not on this machine, the changes make the sweep invalid, or the sweep has ended
            and nothing changes.
        NewerVersion: A later release wrote a file in its folder.
    """
    location = record.tags.get(TAG_FOLDER, "")
    stored_at = location if is_remote(location) and folder is None else None
    was = Path(location) if stored_at is None else _copied(record.sweep, stored_at)
    folder = was if folder is None else folder.expanduser().absolute()
    has_moved = _is_gone(was / SWEEP_FILE)  # moved, not copied: after a copy, the driver may use the original
    if folder != was and record.status == "running" and not driver_was_killed(folder if has_moved else was):
        raise UserError(
            f"{record.sweep} is running in {was}: its driver was active within the last {HEARTBEAT_TIMEOUT_S:.0f} s; "
            f"end it with `python -m sweeps stop {record.sweep}`, or wait if its machine is lost"
        )
    document = saved_document(record.sweep, folder)
    check_study(folder)
    check_journal(folder)
    working_folder = Path(document["working_folder"])
    if not os.access(working_folder, os.X_OK):  # on another machine, or another user's
        working_folder = Path.cwd()
    uri = record.mlflow.tracking_uri
    # The saved URI has no password, and the store may have moved.
    before = Composition.from_json(document["composition"])
    before = before.recorded_at(uri if working_folder == Path.cwd() else absolute(uri))
    composition = extended(before, changes, record) if changes else before
    space = check_sweep(composition, approve, is_new=False)
    plan = ReopenedPlan(
        name=record.sweep,
        composition=composition,
        space=space,
        scalings=all_scalings(composition, space),
        command=document["command"],
        folder=folder,
        working_folder=working_folder,
        uri=stored_at,
        stages=planned_stages(composition),
        changes=changes,
        saved=document["composition"],
        record=record,
    )
    if changes and composition.config == before.config and is_complete(record, plan):
        given = ", ".join(f"{key}={value}" for key, value in changes.items())
        count = len(record.trials)
        raise AlreadyDone(
            f"{given}: already has this value, and {record.sweep} has ended with {count} trial{'s'[: count != 1]}; "
            "extend needs a larger number, or another value"
        )
    return plan


def check_before_training(plan: Plan) -> None:
    """Check the code and the data of a sweep that continues, from its working folder, as for a new sweep. If no trial
    is left to train, they may be gone.

    Raises:
        ConfigError: Trials would fail when they start; the message has every mistake, one per line.
    """
    assert isinstance(plan, ReopenedPlan)
    record = plan.record
    if not plan.changes and not may_train(record, plan):
        return
    try:
        check_code_and_data(plan, is_new=False)
    except ConfigError:
        # The journal, which takes seconds after thousands of trials, may have ends that MLflow has not received.
        if plan.changes or may_train(with_undelivered(record, plan.folder), plan):
            raise


def as_last_saved(plan: Plan) -> Plan:
    """Return the plan of a sweep whose folder this driver now holds. The driver that held it before may have been
    told to extend the sweep after the plan was made."""
    assert isinstance(plan, ReopenedPlan)
    if saved_document(plan.name, plan.folder)["composition"] == plan.saved:
        return plan
    folder = plan.folder if plan.uri is None else None
    record = load_sweep(plan.config.tracking.uri, plan.name, own_start(plan.folder))
    record = replace(record, status="interrupted")  # no other driver runs it
    return reopened(record, plan.changes, folder)


def _is_gone(file: Path) -> bool:
    """Whether a file does not exist. One in another user's private folder may exist."""
    try:
        return not file.exists()
    except PermissionError:
        return False


def _copied(sweep: str, uri: str) -> Path:
    """Download the newest files of a sweep's driver from an object store; return their folder.

    Raises:
        UserError: The store does not answer.
    """
    folder = working_copy(uri)
    try:
        if not is_held(folder):
            refresh(checked_store(f"{sweep}: its folder", uri), folder)
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{sweep}: the object store of its folder {uri} does not answer ({reason}); try again when it does"
        ) from None
    return folder
