"""Plans that train a recorded trial again as a sweep of one trial, for ``retrain`` and ``reproduce``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweeps.compose.composition import literal
from sweeps.compose.overrides import parse_overrides
from sweeps.compose.search_path import ConfSearchPath
from sweeps.constants import TAG_OF, TAG_OF_RUN, TAG_OF_SWEEP, TAG_OF_TRIAL
from sweeps.errors import ConfigError
from sweeps.plan.export import DEFAULT_URI, alone, as_yaml, choose
from sweeps.plan.new_sweep_name import repeat_name
from sweeps.plan.plan import Plan, make_plan
from sweeps.texts.uri_passwords import holds_password
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.validate.config_checks import Approve


def plan_alone(
    record: SweepRecord,
    trial: TrialRecord,
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
    name: str,
    command: str,
    tags: Mapping[str, str],
    approve: Approve | None = None,
) -> Plan:
    """Return the plan of a sweep that trains one recorded trial again, recorded in the same MLflow store. An override
    that chooses an option of a group (``data=dolly``) replaces the trial's whole section.

    Raises:
        UserError: The request has mistakes that this machine can detect; the message has all of them.
    """
    config = alone(record, trial)
    uri = record.mlflow.tracking_uri
    config["tracking"]["uri"] = DEFAULT_URI if holds_password(uri) else literal(uri)  # no file may have a password
    folders = ConfSearchPath(config_dirs)
    texts = []
    for each in parse_overrides(tokens):
        path, value = each.key_or_group, each.value()
        if folders.is_group(path) and isinstance(value, str) and not each.is_sweep_override():
            _remove(config, path.replace("/", "."))
            texts.append(f"+{path}={value}")
        else:
            texts.append(str(each.input_line))
    with TemporaryDirectory() as folder:
        file = Path(folder, f"{record.conf or record.sweep}.yaml")
        file.write_text(as_yaml(config), encoding="utf-8")
        plan = make_plan([f"conf={file}", *texts], config_dirs, name, command, tags, approve)
    if len(plan.space) or plan.config.search.num_trials > 1:
        searched = ", ".join(plan.space) or f"search.num_trials={plan.config.search.num_trials}"
        raise ConfigError(
            f"{searched}: only one trial is trained here, so nothing can be searched; use `run` to search"
        )
    return replace(plan, composition=plan.composition.recorded_at(record.mlflow.tracking_uri))


def plan_retraining(
    record: SweepRecord,
    trial: str | None,
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
    name: str | None,
    command: str,
    approve: Approve | None = None,
) -> Plan:
    """Return the plan of a sweep that trains a trial again, the best one by default: to its full length, or with other
    data and steps. For the arguments see ``plan_alone``.

    Raises:
        UserError: The request has mistakes that this machine can detect; the message has all of them.
    """
    chosen = choose(record, trial)
    name = repeat_name(record, chosen, "retrain") if name is None else name
    tags = repeat_tags(record, chosen, "retrain")
    return plan_alone(record, chosen, tokens, config_dirs, name, command, tags, approve)


def repeat_tags(record: SweepRecord, trial: TrialRecord | None, what: str) -> dict[str, str]:
    """Return the MLflow tags of a sweep that repeats another one, or a trial of it."""
    tags = {TAG_OF: what, TAG_OF_SWEEP: record.sweep, TAG_OF_RUN: record.mlflow.run_id}
    return tags if trial is None else tags | {TAG_OF_TRIAL: trial.trial, TAG_OF_RUN: trial.run_id}


def _remove(config: dict[str, Any], path: str) -> None:
    *owners, name = path.split(".")
    for owner in owners:
        config = config.get(owner) or {}
    config.pop(name, None)
