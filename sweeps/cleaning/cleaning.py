"""Finds and removes the checkpoints and runs that a policy selects."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from rich.console import Console
from rich.table import Table

from sweeps.cleaning.checkpoint_storage import CheckpointStorage, sweep_folder, sweep_store
from sweeps.cleaning.policy import CleanOptions, Policy, describe_size, read_policy
from sweeps.cleaning.selection import Removal, best_trials, candidates, select
from sweeps.constants import TAG_HEARTBEAT, TAG_KIND, TAG_OF_RUN, TAG_STATE
from sweeps.errors import TrackingUnreachable, UnknownName, UserError
from sweeps.folders.driver_lock import only_driver
from sweeps.storage.location import working_copy
from sweeps.texts.suggestions import did_you_mean
from sweeps.tracking.client import connect, first_cause
from sweeps.tracking.reader import CLOCKS_DIFFER_S, list_sweeps, load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.store import PAGE, all_pages, fetch_runs
from sweeps.tracking.values import number

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cleaning:
    """Removals that a policy selects, and their sizes."""

    policy: Policy
    """Rules by which trials keep their checkpoints."""
    removals: list[Removal]
    """Trials whose checkpoints are removed."""
    size: int
    """Bytes of checkpoints before the removals: of all sweeps if there is a maximum size, otherwise of those that may
    be cleaned."""

    @property
    def freed(self) -> int:
        """Bytes that the removals free; files hard-linked between MLflow and the storage count once per trial."""
        return sum(each.size for each in self.removals)

    def as_json(self, *, done: bool) -> dict[str, Any]:
        """Return the document of ``clean --json``, which also tells whether the removals were made."""
        return {
            "done": done,
            "size": self.size,
            "freed": self.freed,
            "removed": [
                {
                    "sweep": each.record.sweep,
                    "trial": each.trial.trial,
                    "run_id": each.trial.run_id,
                    "checkpoints": each.size,
                    "run": self.policy.runs,
                }
                for each in self.removals
            ],
        }


def clean_by(uri: str, names: Sequence[str], *, dry_run: bool, **options: Unpack[CleanOptions]) -> Cleaning:
    """Remove the checkpoints that the options of ``clean`` select, and return the removals that were made; a dry run
    only returns those that would be made. Without names, all sweeps are cleaned."""
    cleaning = plan_cleaning(uri, names, read_policy(names, **options))
    return cleaning if dry_run else replace(cleaning, removals=clean(uri, cleaning))


def plan_cleaning(uri: str, names: Sequence[str], policy: Policy, started_ms: int | None = None) -> Cleaning:
    """List what a policy would remove, without removing anything. The start is that of the only named sweep; see
    ``load_sweep``.

    Raises:
        UnknownName: There is no such sweep.
        UserError: The model registry does not answer, or the storage of a named sweep cannot be read.
    """
    known = [summary.sweep for summary in list_sweeps(uri)]
    for name in names:
        if name not in known:
            raise UnknownName(f"there is no sweep {name!r}{did_you_mean(str(name), known)}")
    client = connect(uri)
    needs_all = not names or policy.keep_last > 0 or policy.max_size is not None
    records = [load_sweep(uri, name, started_ms) for name in dict.fromkeys(known) if needs_all or name in names]
    storage, sizes, now = CheckpointStorage(client), dict[str, int](), time.time()
    # In MLflow's store or an object store, the size of each checkpoint takes a request.
    for record in records if policy.max_size is not None else candidates(records, policy, names, now):
        try:
            found = {trial.run_id: storage.size(record, trial) for trial in record.all_trials}
        except TrackingUnreachable:  # then no other sweep can be read either
            raise
        except Exception as error:
            why = first_cause(error)
            if record.sweep in names:
                raise UserError(f"{record.sweep}: its storage cannot be read, so nothing is removed: {why}") from error
            logger.warning("%s stays: its storage cannot be read: %s", record.sweep, why)  # others are still cleaned
            records = [each for each in records if each is not record]
        else:
            sizes |= {run: size for run, size in found.items() if size is not None}
    removals = select(records, sizes, needed_runs(client), policy, names, now)
    return Cleaning(policy, removals, sum(sizes.values()))


def clean(uri: str, cleaning: Cleaning) -> list[Removal]:
    """Remove what the cleaning selected, and return the removals that were made. Each sweep is locked and read again
    first: trials that the policy no longer selects, since the sweep has gone on meanwhile, are left out."""
    policy = replace(cleaning.policy, keep_last=0, max_size=None)  # these have chosen among sweeps
    client = connect(uri)
    storage = CheckpointStorage(client)
    done: list[Removal] = []
    for name in dict.fromkeys(each.record.sweep for each in cleaning.removals):
        removals = [each for each in cleaning.removals if each.record.sweep == name]
        try:
            with _held(removals[0].record):
                started_ms = round(1000 * removals[0].record.started)
                record, needed = load_sweep(uri, name, started_ms), needed_runs(client)
                sizes = {each.trial.run_id: each.size for each in removals}
                still = {each.trial.run_id for each in select([record], sizes, needed, policy, (), time.time())}
                for each in removals:
                    if each.trial.run_id not in still:
                        continue
                    storage.remove(record, each.trial, run=cleaning.policy.runs)
                    done.append(each)
        except UserError as error:
            logger.warning("%s stays: %s", name, error)
        except Exception as error:  # noqa: BLE001 - the other sweeps are still cleaned
            logger.warning("%s could not be cleaned: %s", name, first_cause(error))
    return done


def _held(record: SweepRecord) -> AbstractContextManager[None]:
    """Lock a sweep's folder, if this machine can reach it."""
    if (store := sweep_store(record)) is not None:
        return only_driver(working_copy(store.uri), record.sweep, store=store)
    if (folder := sweep_folder(record)) is not None:
        return only_driver(folder, record.sweep)
    silent_s = time.time() - (number(record.tags.get(TAG_HEARTBEAT)) or record.started)
    if record.tags.get(TAG_STATE) == "running" and silent_s < CLOCKS_DIFFER_S:
        raise UserError(
            f"its folder is not on this machine, and its driver may still run: its last heartbeat was {silent_s:.0f} s "
            f"ago by this machine's clock; clean it where its folder is, or {CLOCKS_DIFFER_S / 3600:.0f} h after that"
        )
    return nullcontext()


def keep_only_the_best(uri: str, name: str, count: int, started_ms: int | None = None) -> None:
    """Remove the checkpoints of all but the best trials of a sweep that has ended. The start is that of the sweep's own
    run; see ``load_sweep``."""
    try:
        clean(uri, plan_cleaning(uri, [name], Policy(keep_best=count), started_ms))
    except Exception as error:  # noqa: BLE001 - the sweep itself has succeeded
        again = f"python -m sweeps clean {name} --keep-best {count}"
        logger.warning(
            "superfluous checkpoints of %s were not removed: %s; `%s` removes them", name, first_cause(error), again
        )


def needed_runs(client: MlflowClient) -> set[str]:
    """Return the runs that registered models come from or that other sweeps repeat.

    Raises:
        UserError: The registry does not answer.
    """
    from mlflow.exceptions import MlflowException

    parents = fetch_runs(client.tracking_uri, {TAG_KIND: "sweep"})
    runs = {run.tags[TAG_OF_RUN] for run in parents if TAG_OF_RUN in run.tags}
    try:
        versions = all_pages(lambda token: client.search_model_versions(max_results=PAGE, page_token=token))
    except MlflowException as error:
        raise UserError(f"the model registry does not answer, so nothing is removed: {first_cause(error)}") from error
    for version in versions:
        runs.add(version.run_id or "")
        if version.source is not None and version.source.startswith("runs:/"):
            runs.add(version.source.removeprefix("runs:/").partition("/")[0])
    return runs


def print_cleaning(cleaning: Cleaning, removals: Collection[Removal], console: Console) -> None:
    """Print the removals as a table with a row for each sweep."""
    whose = "" if cleaning.policy.max_size is not None else " of the selected sweeps"
    if not removals:
        stay = f": {describe_size(cleaning.size)} of checkpoints{whose} stay" if cleaning.size else ""
        console.print(f"Nothing to remove{stay}.")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, justify in (("sweep", "left"), ("trials", "right"), ("checkpoints", "right"), ("kept", "left")):
        table.add_column(name, justify=justify, no_wrap=name == "sweep")  # type: ignore[arg-type]
    for record in {each.record.sweep: each.record for each in removals}.values():
        own = [each for each in removals if each.record is record]
        kept = ", ".join(dict.fromkeys(trial.trial for trial in best_trials(record, cleaning.policy.keep_best)))
        size = describe_size(sum(each.size for each in own))
        table.add_row(record.sweep, str(len(own)), size, f"the best: {kept}" if kept else "")
    console.print(table)
    console.print()
    freed = sum(each.size for each in removals)
    left = cleaning.size - freed
    console.print(f"{describe_size(freed)} of {describe_size(cleaning.size)} of checkpoints{whose}", highlight=False)
    if cleaning.policy.max_size is not None and left > cleaning.policy.max_size:
        console.print(
            f"checkpoints that must be kept take {describe_size(left)}, which is more than --max-size", highlight=False
        )
    if cleaning.policy.runs:
        console.print("MLflow keeps deleted runs until `mlflow gc`", highlight=False, markup=False)
