"""Loads the trials from which a search learns: those of earlier sweeps, and those of other programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from sweeps.compose import Composition
from sweeps.compose.dotted import MISSING, find
from sweeps.compose.expressions import Absent
from sweeps.config.warm_start import MLflowExperiment, OptunaStudy, OtherTrials, WarmStart
from sweeps.constants import CONFIG_ARTIFACT
from sweeps.errors import ConfigError, UnknownName, UserError
from sweeps.search.samplers.earlier_sweep import EarlierSweep, as_point
from sweeps.space.constraints import Constraints
from sweeps.space.space import Lookup, Point, Space
from sweeps.texts.wording import counted
from sweeps.tracking.artifacts import read_text, recorded_composition
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord
from sweeps.tracking.store import changed_parameters
from sweeps.warm_start.points import as_earlier_sweep

ConfigLookup = Callable[[Point], Lookup]
"""Returns, for the parameters of a trial, a lookup in its config."""


def load_earlier(
    uri: str, names: Sequence[WarmStart], space: Space, lookup: Lookup, metric: str, mode: str
) -> list[EarlierSweep]:
    """Load the finished and pruned trials of earlier sweeps from their record in MLflow, and trials of other programs.

    A trial is left out if one of its values is outside of this sweep's ranges, or if a choice that this sweep does not
    search differs from this sweep's own value. Numbers that this sweep does not search are ignored. A parameter that
    only this sweep searches has the value of the trial's config; the trial is left out if that is unknown or outside of
    the range. So is a trial that copied the state of another one (population based training).

    Args:
        uri: Tracking URI.
        names: Names of the sweeps, or ``OptunaStudy``, ``MLflowExperiment`` and ``TrialTable``, as in
            ``search.warm_start``.
        space: This sweep's space.
        lookup: Returns this sweep's own value at a path.
        metric: Metric that this sweep optimises.
        mode: ``min`` or ``max``.

    Returns:
        The trials of each sweep, in the order of the names.

    Raises:
        UserError: There is no such sweep or source, it optimised another metric, or none of its trials lies in the
            space.
        TrackingUnreachable: The server does not answer.

    Example:
        >>> from sweeps.search import FloatDistribution, Space, load_earlier
        >>> space = Space({"train.lr": FloatDistribution(type="float", low=1e-5, high=1e-2, log=True)})
        >>> load_earlier("sqlite:///mlflow.db", [], space, lambda path: None, "eval/loss", "min")
        []
    """
    earlier = []
    for index, name in enumerate(names):
        if not isinstance(name, str):
            key = f"search.warm_start.{index}"
            earlier.append(load_other_trials(key, name, uri, space, lookup, (metric, mode)))
            continue
        key = f"search.warm_start.{index}={name}"
        try:
            record = load_sweep(uri, name)
        except UnknownName as error:
            raise UserError(f"{key}: {error}") from None
        earlier.append(_overlap(record, key, space, lookup, config_lookup(uri, record), (metric, mode)))
    return earlier


def load_other_trials(
    key: str, source: OtherTrials, tracking_uri: str, space: Space, lookup: Lookup, objective: tuple[str, str]
) -> EarlierSweep:
    """Load the trials of one source that lie in this sweep's space.

    Raises:
        UserError: The source does not exist, cannot be read, or has no trial in the space.
        TrackingUnreachable: Its MLflow server does not answer.
    """
    metric, mode = objective
    # The readers import Optuna, MLflow or pandas, which takes seconds.
    if isinstance(source, OptunaStudy):
        from sweeps.warm_start.optuna_study import read_study

        search = read_study(key, source, space)
    elif isinstance(source, MLflowExperiment):
        from sweeps.warm_start.mlflow_experiment import read_experiment

        search = read_experiment(key, source, tracking_uri, metric)
    else:
        from sweeps.warm_start.trial_table import read_table

        search = read_table(key, source, metric)
    return as_earlier_sweep(key, search, source.parameters, source.fixed, space, lookup, mode)


def _overlap(
    record: SweepRecord, key: str, space: Space, lookup: Lookup, config: ConfigLookup, objective: tuple[str, str]
) -> EarlierSweep:
    metric, mode = objective
    if objective not in list(zip(record.metrics, record.modes, strict=True)):
        theirs = ", ".join(f"{mode} {metric}" for metric, mode in zip(record.metrics, record.modes, strict=True))
        raise UserError(
            f"{key}: its objective is {theirs or 'unknown'}, and that of this sweep is {mode} {metric}; "
            "leave it out, or set search.metric and search.mode to the same"
        )
    measured: list[tuple[float, Point, str]] = []
    refusals: Counter[str] = Counter()
    trials = [trial for trial in record.trials if trial.state in ("finished", "pruned") and trial.violation is None]
    copied = _copied(record, trials, config({})("search.scheduler.kind"))
    trials = [trial for trial in trials if trial.trial not in copied]
    for trial in trials:
        value = _value(trial, record.metrics.index(metric))
        point = as_point(space, lookup, config(trial.params), trial.params)
        if isinstance(point, str):
            refusals[point] += 1
        elif value is not None and math.isfinite(value):
            measured.append((value, point, trial.run_id))
    if not measured:
        why = "; ".join(f"{count} because of {path}" for path, count in refusals.most_common(3))
        if not refusals:
            which = " that did not copy another one's state" if copied else ""
            raise UserError(f"{key}: it has no finished trial{which}; leave it out")
        outside = f"none of its {len(trials)} finished trials lies in this sweep's space ({why})"
        raise UserError(f"{key}: {outside}; widen the ranges, or leave it out")
    measured.sort(key=lambda each: each[0], reverse=mode == "max")
    values, points, runs = zip(*measured, strict=True)
    note = f"left out: {counted(len(copied), 'trial')} that copied the state of another one" if copied else ""
    return EarlierSweep(record.sweep, list(points), list(values), list(runs), note)


def _value(trial: TrialRecord, objective: int) -> float | None:
    return trial.values[objective] if trial.values else trial.value


def _copied(record: SweepRecord, trials: Sequence[TrialRecord], scheduler: Any) -> set[str]:
    """Return the ids of trials whose values do not lead to their result: in population based training, they copied the
    state of another trial."""
    if scheduler not in ("pbt", "pb2"):
        return set()
    uri = record.mlflow.tracking_uri
    return {each.trial for each in trials if not each.run_id or changed_parameters(uri, each.run_id)}


def config_lookup(uri: str, record: SweepRecord) -> ConfigLookup:
    """Return a function that returns, for the parameters of a trial of an earlier sweep, a lookup in the trial's
    config: the option of a group, or the value at a path; None for an unknown path, and for every path if the config
    was not recorded."""
    text = read_text(uri, record.mlflow.run_id, CONFIG_ARTIFACT)
    of_sweep = None if text is None else yaml.safe_load(text)
    try:
        composition = recorded_composition(record)
    except UserError:  # of another version, which accepted another config
        composition = None
    constraints = None if composition is None else Constraints(composition)

    def of_trial(params: Point) -> Lookup:
        in_trial = None if constraints is None else constraints.values(params)

        def lookup(path: str) -> Any:
            if in_trial is not None and composition is not None and _may_differ(composition, params, path):
                try:
                    return in_trial(path)
                except Absent:
                    return None
                except ConfigError:
                    pass  # a secret in the config was not recorded
            found = find(of_sweep, path)
            return None if found is MISSING else found

        return lookup

    return of_trial


def _may_differ(composition: Composition, params: Point, path: str) -> bool:
    """Whether a trial's value may differ from its sweep's config, or the path is a group, whose option the config does
    not name."""
    return (
        path in composition.options
        or composition.variant(params) != composition.variant({})
        or composition.derives(params, path)
    )
