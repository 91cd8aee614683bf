"""Exclusive access of a driver to its sweep's folder, and the folder's copy in an object store if there is one."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

from sweeps.driver.driver_progress import is_stalled
from sweeps.errors import StorageFailed, SweepsError, Undelivered, UserError, is_storage_failure
from sweeps.files.whole_files import FOLDER_MODE
from sweeps.folders.driver_lock import DRIVER_FILE, PATIENCE, is_held, only_driver
from sweeps.plan.plan import Plan
from sweeps.plan.unstarted import is_unstarted, was_left_unstarted
from sweeps.runtime.checkpoint_layout import checkpoint_folder, trial_and_exploits
from sweeps.runtime.report_log import REPORT_LOG_FILE
from sweeps.storage.object_store import ObjectStore
from sweeps.storage.state_mirror import StateMirror
from sweeps.tracking.client import first_cause, waiting_time_s
from sweeps.tracking.journal import Journal
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.sweep_run import check_name

REQUESTS_AT_ONCE = 16
"""Maximum number of small objects that are read concurrently."""


def make_folder(plan: Plan) -> None:
    """Create the folder of a new sweep, replacing one left by a driver that was killed before its search began.

    Raises:
        UserError: The folder cannot be made, or MLflow or the object store cannot be used or already has a sweep of
            this name.
    """
    plan.check_store()
    if plan.uri is None and was_left_unstarted(plan.folder):
        check_name(plan.config.tracking.uri, plan.name)
        remove_folder(plan)
    if plan.uri is not None and not is_held(plan.folder):  # the copy belongs to a sweep that is no longer in the store
        shutil.rmtree(plan.folder, ignore_errors=True)
    try:
        plan.folder.mkdir(mode=FOLDER_MODE, parents=True)
    except FileExistsError:
        raise UserError(
            f"a sweep named {plan.name!r} was started at the same moment, in {plan.folder}; choose another --name"
        ) from None
    except OSError as error:
        raise UserError(
            f"output_dir={plan.config.output_dir}: cannot make the folder {plan.folder} ({error.strerror}); "
            f"{'set output_dir' if plan.uri is None else 'set SWEEPS_CACHE'} to a folder that can be written"
        ) from None


def remove_folder(plan: Plan) -> None:
    """Remove the folder of a sweep that could not start; a folder in which the search has begun stays."""
    if is_unstarted(plan.folder):
        shutil.rmtree(plan.folder, ignore_errors=True)
        if plan.store is not None:
            with contextlib.suppress(OSError):
                if plan.store.read(DRIVER_FILE) is None:
                    plan.store.remove_all()


@contextlib.contextmanager
def held(plan: Plan) -> Iterator[Callable[[], bool] | None]:
    """Hold exclusive access to a sweep's folder. If the sweep is in an object store, its newest state is downloaded
    first, and changes are uploaded as they are made.

    Yields:
        For a folder in an object store, a function that copies all changes and returns whether that has succeeded.

    Raises:
        UserError: Another driver runs the sweep, the store does not answer, a new sweep's folder cannot be written, or
            ``SWEEPS_WAIT_FOR_DRIVER_S`` is no number.
        StorageFailed: The folder of a sweep that has begun cannot be written.
        Undelivered: The sweep has ended, and the store does not take its last changes.
    """
    with _storage_failures_named(plan), contextlib.ExitStack() as stack:
        try:
            patience_s = waiting_time_s(PATIENCE)
            stack.enter_context(
                only_driver(plan.folder, plan.name, store=plan.store, patience_s=patience_s, is_stalled=is_stalled)
            )
            copy = None if plan.store is None else stack.enter_context(_mirrored(plan, plan.store))
        except OSError as error:
            if plan.store is None:
                raise
            raise UserError(f"output_dir={plan.config.output_dir}: does not answer ({_first_line(error)})") from None
        yield copy


@contextlib.contextmanager
def _storage_failures_named(plan: Plan) -> Iterator[None]:
    """Convert an operating system's error about a sweep's folder to an error that says what to do."""
    try:
        yield
    except OSError as error:
        if not is_storage_failure(error) and str(plan.folder.resolve()) not in str(error.filename):
            raise
        cause = first_cause(error)
        if Journal.is_in(plan.folder):
            raise StorageFailed(plan.folder, cause) from error
        raise UserError(
            f"output_dir={plan.config.output_dir}: {plan.folder} cannot be written ({cause}); set output_dir to a "
            "folder that can be written"
        ) from error


@contextlib.contextmanager
def _mirrored(plan: Plan, store: ObjectStore) -> Iterator[Callable[[], bool]]:
    mirror = StateMirror(store, plan.folder)
    mirror.start()
    try:
        yield mirror.try_to_copy
    finally:
        try:
            mirror.close()
        except OSError as error:
            raise Undelivered(
                f"{plan.name}: {store} has not received the last changes of its state ({_first_line(error)}); "
                "they are in "
                f"{plan.folder}, and `python -m sweeps resume {plan.name}` on this machine copies them"
            ) from error


def bring_reports(plan: Plan, earlier: SweepRecord | None) -> None:
    """Download the reports of workers in earlier sessions, if the sweep is in an object store.

    Trials that began or took over another trial's state after the sweep's state was last copied are removed: the search
    suggests new trials with the same numbers, and makes its decisions again.

    Raises:
        SweepsError: The store does not answer.
    """
    if plan.store is None or earlier is None:
        return
    from sweeps.search.study_rewriting import exploits_of_trials

    known: dict[str, float] = {trial.trial: math.inf for trial in earlier.all_trials}
    known |= exploits_of_trials(plan.folder, plan.name)
    trials = plan.store / "trials"
    try:
        owners = {name: trial_and_exploits(name) for name in trials.names()}
        lost = {(trial, exploits) for trial, exploits in owners.values() if exploits > known.get(trial, -1)}
        for trial, exploits in sorted(lost):
            checkpoint_folder(trials, trial, exploits).remove_all()
        shutil.rmtree(plan.folder / "trials", ignore_errors=True)
        logs = [name for name in owners if PurePosixPath(name).name == REPORT_LOG_FILE and owners[name] not in lost]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            list(threads.map(lambda name: trials.download(name, plan.folder / "trials" / name), logs))
    except OSError as error:
        raise SweepsError(f"{plan.store}: does not answer ({_first_line(error)})") from error


def _first_line(error: OSError) -> str:
    return str(error).partition("\n")[0]
