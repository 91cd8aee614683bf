"""A sweep's own run in MLflow, which has the sweep's name and is the parent of its trials' runs. All functions that
have to reach the store raise ``TrackingUnreachable`` if it does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps import constants
from sweeps.compat.mlflow import EXPERIMENT_KIND_TAG
from sweeps.errors import UserError
from sweeps.files.checksums import parsed
from sweeps.files.whole_files import write_json
from sweeps.provenance.machine import user
from sweeps.texts.uri_passwords import redact_uri
from sweeps.texts.wording import value_text
from sweeps.tracking.client import artifact_location
from sweeps.tracking.mlflow_characters import LONGEST_TAG, storable
from sweeps.tracking.mlflow_texts import as_code, page_links
from sweeps.tracking.record import MlflowIds, one_or_all
from sweeps.tracking.retry import Refused, Retrier
from sweeps.tracking.store import RawRun, fetch_runs
from sweeps.tracking.values import now_ms

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from sweeps.config.objectives import Objectives

PARENT_FILE = "parent.json"
"""File with the data to create a sweep's parent run, in the sweep's folder."""
OPEN_WITHIN_S = 30
"""Maximum seconds without an answer of MLflow while a recorder is opened."""
EXPERIMENT_DESCRIPTION = (
    "Each sweep is a run, with its trials below it. Its description leads to their table, the best trial first, and to "
    "their charts."
)


@dataclass(frozen=True, kw_only=True)
class SweepInfo:
    """Data from which a sweep's parent run is created."""

    name: str
    conf: str
    """The ``conf=`` with which the sweep was started."""
    objectives: Objectives
    folder: Path
    """Absolute folder of the sweep; for a sweep in an object store, of this machine's copy of the driver's files."""
    config_yaml: str
    """The composed config."""
    planned: int | None = None
    """Number of trials that the sweep can start; default: the config's ``search.num_trials``."""
    points: int | None = None
    """Number of all points of a small space or grid."""
    command: str = ""
    """The command line that started the sweep."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Further tags of the parent run."""
    uri: str | None = None
    """URI of the sweep's folder, if it is in an object store."""
    copy: Callable[[], bool] | None = None
    """Copies the driver's files to the object store, and returns whether that succeeded."""

    @property
    def location(self) -> str:
        """Path or URI of the sweep's folder."""
        return self.uri or str(self.folder)


def check_name(uri: str, name: str) -> None:
    """Check that no recorded sweep has this name.

    Raises:
        UserError: A sweep of this name is recorded.
    """
    if is_recorded(uri, name):
        from sweeps.config.sweep_name import another_name  # imports pydantic, which `list` does without

        raise UserError(f"a sweep named {name!r} already exists in {redact_uri(uri)}; {another_name(name)}")


def is_recorded(uri: str, name: str) -> bool:
    """Whether MLflow has a sweep of this name."""
    return bool(_parents(uri, name))


def create_parent_run(
    client: MlflowClient, uri: str, experiment: str, sweep: SweepInfo, commit: Mapping[str, str]
) -> MlflowIds:
    """Create the parent run of a sweep, and the experiment if there is none.

    Raises:
        UserError: A sweep of that name exists.
        GaveUp: The store has stopped answering.
        Refused: MLflow does not accept the run.
    """
    check_name(uri, sweep.name)
    retrier = Retrier(uri, "writing to MLflow")
    retrier.give_up_after(OPEN_WITHIN_S)
    experiment_id = retrier.call(partial(_experiment_id, client, uri, experiment))
    objectives = sweep.objectives
    links = page_links(experiment_id, sweep.name, objectives.metrics[0], objectives.modes[0])
    tags = {
        "mlflow.user": user(),
        "mlflow.source.name": "python -m sweeps",
        "mlflow.source.type": "LOCAL",
        constants.TAG_DESCRIPTION: f"{as_code(sweep.command)}\n\n{links}",
        constants.TAG_KIND: "sweep",
        constants.TAG_SWEEP: sweep.name,
        constants.TAG_CONF: sweep.conf,
        constants.TAG_STATE: "running",
        constants.TAG_METRIC: value_text(one_or_all(objectives.metrics)),
        constants.TAG_MODE: value_text(one_or_all(objectives.modes)),
        constants.TAG_COMMAND: sweep.command,
        constants.TAG_FOLDER: sweep.location,
        constants.TAG_HEARTBEAT: heartbeat(),
        **commit,
        **sweep.tags,
    }
    tags = _storable_tags(tags)
    started_ms = now_ms()
    write_parent(sweep.folder, experiment, sweep.name, started_ms, tags)
    create = partial(client.create_run, experiment_id, started_ms, tags, run_name=sweep.name)
    run_id = retrier.create_once(
        find=lambda: _started_at(uri, sweep.name, started_ms),
        create=lambda: str(create().info.run_id),
    )
    return MlflowIds(tracking_uri=uri, experiment_id=experiment_id, run_id=run_id)


def write_parent(folder: Path, experiment: str, name: str, started_ms: int, tags: Mapping[str, str]) -> None:
    """Write a parent run's data to a file, so that the run can be created again in another store."""
    document = {"experiment": experiment, "name": name, "started_ms": started_ms, "tags": tags}
    write_json(folder / PARENT_FILE, document, checksum=True)


def own_start(folder: Path) -> int | None:
    """Return the start of a sweep's own run, for ``load_sweep``, given the sweep's folder; None if an earlier release
    has started the sweep, or the file is damaged."""
    try:
        return int(parsed((folder / PARENT_FILE).read_bytes())["started_ms"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def create_lost_run(
    client: MlflowClient, uri: str, experiment: str, sweep: SweepInfo, commit: Mapping[str, str]
) -> None:
    """Create the parent run of a sweep again in a store that has lost it. Errors are those of ``create_parent_run``."""
    try:
        content = (sweep.folder / PARENT_FILE).read_bytes()
        _ = itemgetter("experiment", "name", "started_ms", "tags")(parsed(content))
    except (OSError, ValueError, KeyError, TypeError):  # it is damaged, or an earlier release has started the sweep
        create_parent_run(client, uri, experiment, sweep, commit)
    else:
        retrier = Retrier(uri, "writing to MLflow")
        retrier.give_up_after(OPEN_WITHIN_S)
        retrier.call(partial(create_again, client, uri, content))


def create_again(client: MlflowClient, uri: str, content: bytes) -> MlflowIds:
    """Create a parent run from the file of ``write_parent``, unless it exists."""
    document = parsed(content)
    name, experiment = document["name"], _experiment_id(client, uri, document["experiment"])
    started_ms = document["started_ms"]
    run_id = _started_at(uri, name, started_ms)
    if run_id is None:
        tags = _storable_tags(document["tags"])  # an earlier release has not cut them
        run = client.create_run(experiment, started_ms, tags, run_name=name)
        run_id = str(run.info.run_id)
    return MlflowIds(tracking_uri=uri, experiment_id=experiment, run_id=run_id)


def _storable_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: storable(text)[:LONGEST_TAG] for name, text in tags.items()}


def heartbeat() -> str:
    """Return the text of the heartbeat tag for the current time."""
    return f"{time.time():.3f}"


def _parents(uri: str, name: str) -> list[RawRun]:
    return fetch_runs(uri, {constants.TAG_SWEEP: name, constants.TAG_KIND: "sweep"})


def _started_at(uri: str, name: str, started_ms: int) -> str | None:
    """Return the id of a sweep's own run; another user's sweep of this name has started at another time."""
    return next((run.run_id for run in _parents(uri, name) if run.started == started_ms), None)


def _experiment_id(client: MlflowClient, uri: str, experiment: str) -> str:
    found = client.get_experiment_by_name(experiment)
    if found is not None:
        if found.lifecycle_stage == "deleted":
            raise Refused(
                f"its experiment {experiment} was deleted; restore it "
                f"(mlflow experiments restore --experiment-id {found.experiment_id}), or set tracking.experiment to "
                "another name"
            )
        return str(found.experiment_id)
    tags = {constants.TAG_DESCRIPTION: EXPERIMENT_DESCRIPTION, EXPERIMENT_KIND_TAG[0]: EXPERIMENT_KIND_TAG[1]}
    from mlflow.exceptions import MlflowException

    try:
        return str(client.create_experiment(experiment, artifact_location(uri, experiment), tags))
    except MlflowException as error:
        found = client.get_experiment_by_name(experiment)
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:
            raise
        return str(found.experiment_id)  # another sweep has made it, or an answer was lost
