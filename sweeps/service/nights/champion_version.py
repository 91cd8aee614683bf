"""The champion: the version of a registered model with the alias, and the trial that it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.config.nights import Champion
from sweeps.constants import SEED, TAG_SWEEP, TAG_TRIAL
from sweeps.errors import UserError
from sweeps.plan.plan import Plan
from sweeps.search.samplers.earlier_sweep import as_point
from sweeps.space.space import Point
from sweeps.tracking.client import connect, first_cause, reading_from
from sweeps.tracking.reader import load_sweep
from sweeps.warm_start.earlier_trials import config_lookup


@dataclass(frozen=True)
class Version:
    """A registered model version and the trial that it comes from."""

    version: str
    sweep: str
    trial: str


def champion_of(uri: str, champion: Champion) -> Version | None:
    """Return the version with the alias; None if there is none.

    Raises:
        TrackingUnreachable: MLflow does not answer.
        UserError: MLflow refuses the request.
    """
    client = connect(uri)
    from mlflow.exceptions import MlflowException

    try:
        with reading_from(uri):
            found = client.get_model_version_by_alias(champion.model, champion.alias)
    except MlflowException as error:
        # An unknown model is RESOURCE_DOES_NOT_EXIST, an unknown alias INVALID_PARAMETER_VALUE.
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise UserError(
            f"the version of {champion.model} with the alias {champion.alias} cannot be read: {first_cause(error)}"
        ) from error
    return Version(str(found.version), found.tags.get(TAG_SWEEP, ""), found.tags.get(TAG_TRIAL, ""))


def version_from(uri: str, model: str, run_id: str) -> str | None:
    """Return the newest version of a model that comes from a run; None if there is none."""
    client = connect(uri)
    with reading_from(uri):
        found = client.search_model_versions(f"name = '{model}' and run_id = '{run_id}'")
    return max((str(each.version) for each in found), key=int, default=None)


def champion_point(plan: Plan, uri: str, champion: Version) -> Point:
    """Return the champion's parameters as a point of tonight's space.

    Raises:
        UserError: The point is outside of the space, tonight's config has another value of a parameter that is no
            longer searched, or the parameters are unknown.
    """
    who = f"champion, version {champion.version},"
    if not champion.sweep:
        raise UserError(f"the {who} was not registered by Sweeps, so its parameters are unknown")
    record = load_sweep(uri, champion.sweep)
    trial = next((each for each in record.trials if each.trial == champion.trial), None)
    if trial is None:
        raise UserError(f"the {who} comes from trial {champion.trial} of {champion.sweep}, which MLflow no longer has")
    settings = config_lookup(uri, record)(trial.params)
    point = as_point(plan.space, plan.points.lookup, settings, trial.params)
    if not isinstance(point, str):  # it lacks numbers that are no longer searched; with others it is another model
        fixed = (path for path in trial.params if path not in plan.space and path != SEED)
        point = next((path for path in fixed if trial.params[path] != plan.points.lookup(path)), point)
    if isinstance(point, str):
        value = trial.params.get(point, settings(point))
        raise UserError(f"the {who} has {point}={value!r}, which is outside of tonight's space; widen it")
    plan.check_point(point)
    return point
