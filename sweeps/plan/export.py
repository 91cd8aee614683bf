"""Export of a recorded trial as the config of a sweep of one trial, for ``best --export``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from sweeps.compose.composition import literal
from sweeps.compose.schema_errors import read_config
from sweeps.config import SweepConfig
from sweeps.config.sweep_name import with_ending
from sweeps.constants import CONFIG_ARTIFACT
from sweeps.errors import ConfigError, UnknownName, UserError
from sweeps.texts.wording import counted
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.mlflow_texts import describe_no_best
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.store import changed_parameters
from sweeps.tracking.values import short

DEFAULT_URI = '${oc.env:MLFLOW_TRACKING_URI,"sqlite:///mlflow.db"}'
HEADER = "# Trial "
"""Beginning of every exported config."""
KEPT_OF_SEARCH = ("metric", "mode", "value", "limits", "max_retries")


def choose(record: SweepRecord, trial: str | None) -> TrialRecord:
    """Return a trial by its id (``7`` is ``0007``), or the best one by the first objective.

    Raises:
        UserError: There is no such trial.
    """
    if trial is None:
        if record.best is None:
            raise UserError(f"{record.sweep}: {describe_no_best(record)} Choose a trial with --trial")
        return record.best
    by_id = {each.trial: each for each in record.all_trials}
    chosen = by_id.get(trial) or (by_id.get(trial.zfill(4)) if trial else None)
    if chosen is None:
        known = _ranges(record.all_trials) or "no trials yet"
        raise UnknownName(f"--trial={trial}: {record.sweep} has no such trial; it has {known}")
    return chosen


def _ranges(trials: Sequence[TrialRecord]) -> str:
    """Describe the first and last trial ids of each stage, of the search, and of the repeats."""
    kinds = [[*each] for _, each in groupby(trials, key=lambda trial: (trial.stage, trial.repeat_of is None))]
    return ", ".join(" to ".join(dict.fromkeys([each[0].trial, each[-1].trial])) for each in kinds)


def alone(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    """Return the config of a sweep that trains only this trial, without a search. It trains to its end even if the
    trial was stopped early.

    Raises:
        UserError: MLflow does not have the trial's config, or no single config leads to the trial's result.
    """
    config = _recorded(record, trial)
    _check_unchanged(record, trial)
    search = {key: config["search"][key] for key in KEPT_OF_SEARCH if key in config["search"]}
    config["search"] = {**search, "num_trials": 1, "sampler": {"kind": "random"}, "scheduler": {"kind": "none"}}
    config["space"] = {}
    config["name"] = with_ending(record.sweep, f"-{trial.trial}")
    config["tracking"]["experiment"] = record.experiment or None
    return config


def write_export(text: str, file: Path) -> None:
    """Write the text of an exported config; an earlier export is replaced.

    Raises:
        UserError: The file cannot be written, or is another one.
    """
    try:
        old = file.read_bytes() if file.is_file() else b""
        if old and not old.startswith(HEADER.encode()):
            raise UserError(f"--export={file}: exists, and is not an exported trial; choose another file, or remove it")
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"--export={file}: cannot be written ({error.strerror}); choose a file in another folder"
        ) from None


def exported(record: SweepRecord, trial: TrialRecord, file: Path) -> str:
    """Return the text of an exported config.

    Raises:
        UserError: The file's name is not that of a config, or the trial's config is not known.
    """
    if file.suffix != ".yaml":
        raise ConfigError(f"--export={file}: must end in .yaml, like every config")
    if not str(file).isprintable():  # YAML begins a new line after some unprintable characters
        raise ConfigError(f"--export={str(file)!r}: has characters that cannot be printed; choose another name")
    config = alone(record, trial)
    config["tracking"]["uri"] = _portable(config["tracking"]["uri"])
    values = zip(record.metrics, trial.all_values(), strict=False)
    reached = "".join(f", {metric} {short(value)}" for metric, value in values)
    header = [
        f"{trial.trial} of {record.sweep} ({trial.state} after {counted(trial.steps, 'step')}{reached}).",
        f"Run:      python -m sweeps run {shlex.quote(f'conf={file}')}",
        f"From:     MLflow run {trial.run_id}. Relative paths are relative to the folder in which you run it.",
    ]
    return HEADER + "\n# ".join(header) + "\n" + as_yaml(config)


def config_of(record: SweepRecord, trial: TrialRecord) -> SweepConfig:
    """Return the typed config of a trial.

    Raises:
        UserError: MLflow does not have the config, or another version of Sweeps wrote it and it is not valid here.
    """
    return read_config(_recorded(record, trial))


def _recorded(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    text = read_text(record.mlflow.tracking_uri, trial.run_id, CONFIG_ARTIFACT)
    if text is None:
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: its MLflow run {trial.run_id} has no {CONFIG_ARTIFACT} that "
            "can be read here, so its config is not known"
        )
    config: dict[str, Any] = yaml.safe_load(text)
    return config


def _check_unchanged(record: SweepRecord, trial: TrialRecord) -> None:
    changed = changed_parameters(record.mlflow.tracking_uri, trial.run_id)
    if changed:
        raise UserError(
            f"trial {trial.trial} of {record.sweep}: it copied states and values of other trials during training "
            f"({', '.join(changed)}), so no single config leads to its "
            "result; use its checkpoint, or choose another trial with --trial"
        )


def _portable(uri: str) -> str:
    """Return the tracking URI for an exported file: the default URI instead of ``mlflow.db`` or an address with a
    password."""
    address = uri.partition("://")[2].partition("/")[0]
    return DEFAULT_URI if uri == "sqlite:///mlflow.db" or "@" in address else uri


def as_yaml(config: dict[str, Any]) -> str:
    uri = config["tracking"]["uri"]
    escaped = literal(config)
    escaped["tracking"]["uri"] = uri
    text: str = yaml.dump(escaped, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes strings such as ``1e5``, which Hydra reads as numbers and PyYAML does not."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if re.fullmatch(r"[-+]?[\d_.]+[eE][-+]?\d+", text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)
