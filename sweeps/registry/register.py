"""Registers a trial's model in MLflow, with tags that name its sweep, trial and data."""

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
from sweeps.registry.best_checkpoint import fetch_checkpoint, weights_note
from sweeps.registry.model_owners import ModelRights, claim
from sweeps.tracking.client import connect, first_cause
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.values import short, written

if TYPE_CHECKING:
    from mlflow import MlflowClient

INHERITED = (
    *(constants.TAG_DATA, constants.TAG_SEED, constants.TAG_CHANGES, "mlflow.source.git.commit"),
    *(constants.TAG_OF, constants.TAG_OF_SWEEP, constants.TAG_OF_TRIAL, constants.TAG_OF_RUN),
)
"""Tags of a sweep that are copied to its models."""

_registering = threading.Lock()


@dataclass(frozen=True)
class RegisteredModel:
    """A version of a registered model."""

    name: str
    """Name of the registered model."""
    version: str
    """Number of the version."""
    alias: str | None
    """Alias that was moved to the version; None if there is none."""

    @property
    def uri(self) -> str:
        """Model URI for ``mlflow.pyfunc.load_model`` and ``mlflow models serve -m``."""
        return f"models:/{self.name}@{self.alias}" if self.alias else f"models:/{self.name}/{self.version}"

    def as_json(self) -> dict[str, Any]:
        """Return the version in the form of ``--json``."""
        return {"name": self.name, "version": self.version, "alias": self.alias, "uri": self.uri}


def register(
    record: SweepRecord,
    trial: TrialRecord,
    name: str,
    alias: str | None,
    *,
    merged: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    rights: ModelRights | None = None,
) -> RegisteredModel:
    """Log the model of a trial's best checkpoint to the trial's run, and register it as a new version.

    Args:
        record: The trial's sweep.
        trial: The trial.
        name: Name of the registered model; created if there is none.
        alias: Alias that is moved to the new version; None for none.
        merged: Merge LoRA adapters into their base; else only the adapters are saved, with the name of the base.
        tell: Called with a message at each step, which takes minutes for a large model.
        rights: Rights of the user for whom a service registers it; None: all.

    Returns:
        The new version.

    Raises:
        UserError: There is no checkpoint, its model does not load, MLflow refuses it, or the name belongs to somebody
            else.
    """
    client = connect(record.mlflow.tracking_uri)
    with TemporaryDirectory() as folder, _quiet(client):
        tell(f"fetching the checkpoint of trial {trial.trial}.{weights_note(record, trial)}")
        checkpoint, scratch = fetch_checkpoint(record, trial, Path(folder, "checkpoint")), Path(folder, "model")
        import mlflow  # after the checkpoint is found: these imports take seconds
        from mlflow.exceptions import MlflowException
        from mlflow.models import Model

        from sweeps.registry.flavours import flavour_of

        scratch.mkdir()
        tell("loading its model" + (" and merging its adapters" if merged else ""))
        try:
            flavour = flavour_of(checkpoint, scratch, merged=merged)
        except UserError as error:
            raise UserError(f"trial {trial.trial} of {record.sweep}, {error}") from error
        tell(f"logging it to MLflow, for a version of {name}")
        tags = _tags(record, trial, merged=merged)
        try:
            model = mlflow.initialize_logged_model(
                name="model",
                source_run_id=trial.run_id,
                params=client.get_run(trial.run_id).data.params,
                experiment_id=record.mlflow.experiment_id,  # otherwise MLflow takes its Default experiment
            )
            logged = Model.log(
                artifact_path=None,
                model_id=model.model_id,
                flavor=flavour.module,
                run_id=trial.run_id,
                metadata=tags | flavour.metadata,
                **flavour.arguments,
            )
            claim(client, name, rights)
            version = client.create_model_version(
                name,
                str(logged.model_uri),
                trial.run_id,
                tags=tags,
                description=_description(record, trial),
                model_id=model.model_id,
            ).version
            if alias is not None:
                client.set_registered_model_alias(name, alias, version)
        except MlflowException as error:
            raise UserError(f"MLflow cannot register {name}: {first_cause(error)}") from error
    return RegisteredModel(name, str(version), alias)


def _tags(record: SweepRecord, trial: TrialRecord, *, merged: bool) -> dict[str, str]:
    tags = {
        constants.TAG_SWEEP: record.sweep,
        constants.TAG_TRIAL: trial.trial,
        constants.TAG_METRIC: record.metric,
        constants.TAG_MODE: record.mode,
        "sweeps.merged": "true" if merged else "false",
    }
    value = trial.value if trial.other_weights is None else next(iter(trial.other_weights.values), None)
    if value is not None:  # the value of these weights, by which models are compared
        tags[constants.TAG_VALUE] = written((value,))
    return tags | {key: record.tags[key] for key in INHERITED if key in record.tags}


def _description(record: SweepRecord, trial: TrialRecord) -> str:
    value = "" if trial.value is None else f", {record.metric} {short(trial.value)}"
    of = record.tags.get(constants.TAG_OF_SWEEP)
    trained_again = f" (trial {record.tags.get(constants.TAG_OF_TRIAL)} of {of}, trained again)" if of else ""
    return f"Trial {trial.trial} of the sweep {record.sweep}{trained_again}{value}.{weights_note(record, trial)}"


@contextmanager
def _quiet(client: MlflowClient) -> Iterator[None]:
    """Let ``Model.log`` write to the client's store and log only errors inside a ``with`` block. Only one thread at a
    time can be in such a block, since MLflow's tracking URI and loggers are global."""
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
            if variable is not None:  # MLflow sets and removes it with its tracking URI
                os.environ["MLFLOW_TRACKING_URI"] = variable
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)
