"""Puts a trial's model into MLflow's registry, with where it comes from."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sweeps import constants
from sweeps.compat.mlflow import use_tracking_uri
from sweeps.errors import UserError
from sweeps.registry.checkpoint import fetch_checkpoint
from sweeps.tracking.client import connect, first_cause
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.values import short, written

if TYPE_CHECKING:
    from mlflow import MlflowClient

INHERITED = (
    *(constants.TAG_DATA, constants.TAG_SEED, constants.TAG_CHANGES, "mlflow.source.git.commit"),
    *(constants.TAG_OF, constants.TAG_OF_SWEEP, constants.TAG_OF_TRIAL, constants.TAG_OF_RUN),
)
"""Tags of a sweep that its models have, too."""

_registering = threading.Lock()


@dataclass(frozen=True)
class RegisteredModel:
    """A version in the registry."""

    name: str
    version: str
    alias: str | None

    @property
    def uri(self) -> str:
        """What ``mlflow.pyfunc.load_model`` and ``mlflow models serve -m`` take."""
        return f"models:/{self.name}@{self.alias}" if self.alias else f"models:/{self.name}/{self.version}"

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "alias": self.alias, "uri": self.uri}


def register(
    record: SweepRecord,
    trial: TrialRecord,
    name: str,
    alias: str | None,
    *,
    merged: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> RegisteredModel:
    """Log a trial's model to its own run, and make it a version of a registered model.

    Args:
        record: The trial's sweep.
        trial: Whose best checkpoint it is.
        name: Of the registered model; made if there is none.
        alias: That moves to the new version; None for none.
        merged: Fold LoRA adapters into their base; else adapters are kept alone, and the base is named.
        tell: Hears what is being done, which takes minutes for a large model.

    Raises:
        UserError: There is no checkpoint, its model does not load, or MLflow refuses.
    """
    client = connect(record.mlflow.tracking_uri)
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    from sweeps.registry.flavours import flavour_of

    with TemporaryDirectory() as folder, _quiet(client):
        tell(f"fetching the checkpoint of trial {trial.trial}")
        checkpoint = fetch_checkpoint(record, trial, Path(folder))
        tell("loading its model" + (" and merging its adapters" if merged else ""))
        flavour = flavour_of(checkpoint, merged=merged)
        tell(f"logging it to MLflow, for a version of {name}")
        tags = _lineage(record, trial, merged=merged)
        try:
            logged = Model.log(
                artifact_path=None,
                name="model",
                flavor=flavour.module,
                run_id=trial.run_id,
                metadata=tags | flavour.metadata,
                **flavour.arguments,
            )
            version = _version(client, name, str(logged.model_uri), trial.run_id, tags, _description(record, trial))
            if alias is not None:
                client.set_registered_model_alias(name, alias, version)
        except MlflowException as error:
            raise UserError(f"MLflow does not register {name}: {first_cause(error)}") from error
    return RegisteredModel(name, version, alias)


def _version(client: MlflowClient, name: str, source: str, run_id: str, tags: dict[str, str], description: str) -> str:
    from mlflow.exceptions import MlflowException

    try:
        client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        client.create_registered_model(name)
    model_id = source.removeprefix("models:/")
    made = client.create_model_version(
        name, source, run_id, tags=tags, description=description, model_id=model_id if "/" not in model_id else None
    )
    return str(made.version)


def _lineage(record: SweepRecord, trial: TrialRecord, *, merged: bool) -> dict[str, str]:
    tags = {
        constants.TAG_SWEEP: record.sweep,
        constants.TAG_TRIAL: trial.trial,
        constants.TAG_METRIC: record.metric,
        constants.TAG_MODE: record.mode,
        "sweeps.merged": "true" if merged else "false",
    }
    if trial.value is not None:
        tags[constants.TAG_VALUE] = written((trial.value,))
    return tags | {key: record.tags[key] for key in INHERITED if key in record.tags}


def _description(record: SweepRecord, trial: TrialRecord) -> str:
    value = "" if trial.value is None else f", {record.metric} {short(trial.value)}"
    of = record.tags.get(constants.TAG_OF_SWEEP)
    trained_again = f" (trial {record.tags.get(constants.TAG_OF_TRIAL)} of {of}, trained again)" if of else ""
    return f"Trial {trial.trial} of the sweep {record.sweep}{trained_again}{value}."


@contextmanager
def _quiet(client: MlflowClient) -> Iterator[None]:
    """``Model.log`` writes to MLflow's global store, which is the client's meanwhile, and says much. One at a time:
    what is global is every thread's."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "mlflow.transformers", "mlflow.pytorch", "mlflow.pyfunc")]
    with _registering:
        levels = [each.level for each in loggers]
        variable = os.environ.get("MLFLOW_TRACKING_URI")
        for each in loggers:
            each.setLevel(logging.ERROR)
        try:
            with use_tracking_uri(client.tracking_uri):
                yield
        finally:
            if variable is not None:  # which MLflow sets and removes with its store
                os.environ["MLFLOW_TRACKING_URI"] = variable
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)
