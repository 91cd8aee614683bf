"""A recorded trial as a sweep of its own: what ``best --export`` writes, and what ``retrain`` and ``reproduce`` run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sweeps.constants import CONFIG_ARTIFACT, PARAMETER_PREFIX
from sweeps.errors import ConfigError, UnknownName, UserError, nearest
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.client import connect
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.values import short

DEFAULT_URI = '${oc.env:MLFLOW_TRACKING_URI,"sqlite:///mlflow.db"}'
KEPT_OF_SEARCH = ("metric", "mode", "limits", "max_retries")
LONGEST_NAME = 120


def choose(record: SweepRecord, trial: str | None) -> TrialRecord:
    """A trial by its id (``7`` is ``0007``), or the best; of several objectives, the best by the first.

    Raises:
        UserError: There is none.
    """
    if trial is None:
        if record.best is None:
            raise UserError(
                f"{record.sweep}: no trial has a value of {' and '.join(record.metrics)} yet; name one with --trial"
            )
        return record.best
    by_id = {each.trial: each for each in record.trials}
    chosen = by_id.get(trial) or by_id.get(trial.zfill(4))
    if chosen is None:
        raise UnknownName(f"--trial={trial}: {record.sweep} has no such trial{nearest(trial.zfill(4), by_id)}")
    return chosen


def alone(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    """The config of a sweep whose only trial is this one: the trial's own config, with nothing left to search. It
    trains to its end, also where the trial was stopped early.

    Raises:
        UserError: MLflow does not have the trial's config, or no config leads to what the trial became.
    """
    text = read_text(record.mlflow.tracking_uri, trial.run_id, CONFIG_ARTIFACT)
    if text is None:
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: its MLflow run {trial.run_id} has no {CONFIG_ARTIFACT}, so its "
            "config is not known"
        )
    _check_unchanged(record, trial)
    config: dict[str, Any] = yaml.safe_load(text)
    search = {key: config["search"][key] for key in KEPT_OF_SEARCH if key in config["search"]}
    config["search"] = {**search, "num_trials": 1, "sampler": {"kind": "random"}, "scheduler": {"kind": "none"}}
    config["space"] = {}
    config["name"] = f"{record.sweep}-{trial.trial}"[:LONGEST_NAME]
    config["tracking"]["experiment"] = record.experiment or None
    return config


def export(record: SweepRecord, trial: TrialRecord, file: Path) -> None:
    """Write a trial as a config that ``run conf=FILE`` takes as it is.

    Raises:
        UserError: The file cannot be written, or the trial's config is not known.
    """
    if file.suffix != ".yaml":
        raise ConfigError(f"--export={file}: must end in .yaml, as every config that `run conf=` takes")
    text = as_yaml(alone(record, trial), record, trial, file)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--export={file}: cannot be written ({error.strerror}); give a file in a folder that can"
        ) from None


def as_yaml(config: dict[str, Any], record: SweepRecord, trial: TrialRecord, file: Path) -> str:
    """The text of a config file, with where it comes from at its head."""
    config = {**_literal(config), "tracking": _portable(config["tracking"])}
    values = trial.values or (() if trial.value is None else (trial.value,))
    reached = "".join(f", {metric} {short(value)}" for metric, value in zip(record.metrics, values, strict=False))
    header = [
        f"Trial {trial.trial} of {record.sweep} ({trial.state} after {trial.steps} steps{reached}).",
        f"Run:      python -m sweeps run conf={file}",
        f"From:     MLflow run {trial.run_id}. Relative paths are relative to the folder in which you run it.",
    ]
    body = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}\n" for line in header) + body


def _check_unchanged(record: SweepRecord, trial: TrialRecord) -> None:
    data = connect(record.mlflow.tracking_uri).get_run(trial.run_id).data
    changed = sorted(name for name in {**data.metrics, **data.tags} if name.startswith(PARAMETER_PREFIX))
    if changed:
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: it took over other trials' states and values on its way (of "
            f"{', '.join(name.removeprefix(PARAMETER_PREFIX) for name in changed)}), so that no config leads to it; "
            "its checkpoint is what there is of it, or name another one with --trial"
        )


def _portable(tracking: dict[str, Any]) -> dict[str, Any]:
    """The default, which follows the environment, stays one; a server's password stays out of files."""
    address = tracking["uri"].partition("://")[2].partition("/")[0]
    follows = tracking["uri"].endswith("mlflow.db") or "@" in address
    return {**tracking, "uri": DEFAULT_URI if follows else tracking["uri"]}


def _literal(value: Any) -> Any:
    """With what OmegaConf would take for an interpolation escaped."""
    if isinstance(value, dict):
        return {key: _literal(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_literal(each) for each in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value
