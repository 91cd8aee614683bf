"""An estimator as a Ray Train function: it reports as it is fitted, and resumes from its checkpoints."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np
import ray
import ray.train

from sweeps_train.config.better import Objective, as_loss
from sweeps_train.config.estimator import EstimatorConfig
from sweeps_train.estimators.construct import estimator_class, goal_of, is_native, make_estimator
from sweeps_train.estimators.growth import PIECES, growth_of
from sweeps_train.estimators.model import EstimatorModel, load_estimator
from sweeps_train.estimators.rows import Split, fold_splits, held_out_split

STATE_FILE = "state.json"


@dataclass
class Fitted:
    """Position of a training, saved with each checkpoint."""

    units: int = 0
    """Fitted rounds, trees, passes or folds."""
    folds: list[dict[str, float]] = field(default_factory=list)
    """Metrics of each fold."""
    best: float | None = None
    """Best value of the search's metric."""
    stale: int = 0
    """Number of reports since the best value."""
    ended: bool = False
    """Whether the last report was the final one."""


def estimator_function(config: EstimatorConfig, objective: Objective) -> Callable[[], None]:
    """Return a Ray Train function that fits an estimator, whose objective must improve within ``task.patience``
    reports.

    Raises:
        ValueError: The class is not an estimator; from the returned function: the table cannot be used.
    """
    found = estimator_class(config.task)
    goal, native = goal_of(config.task, found), is_native(config.task, found)

    def train() -> None:
        model, fitted = _resumed()
        if config.task.folds is not None:
            _fit_folds(config, fold_splits(config.data, goal, config.task.folds), fitted, native=native)
        else:
            split = held_out_split(config.data, goal, None if model is None else model.encoding)
            _fit(config, split, model, fitted, objective, native=native)

    return train


def _fit(
    config: EstimatorConfig,
    split: Split,
    resumed: EstimatorModel | None,
    fitted: Fitted,
    objective: Objective,
    *,
    native: bool,
) -> None:
    """Fit an estimator piece by piece, with a report after each."""
    new = make_estimator(config.task, config.seed, _num_cpus(), split.encoding)
    model, growth = resumed or split.model(new, native=native), growth_of(new)
    if resumed is not None:  # PBT may have changed an argument, and another worker may have other CPUs
        present = new.get_params()
        given = {name: present[name] for name in (*config.task.arguments, "n_jobs") if name in present}
        model.estimator.set_params(**given)
    every = config.task.report_every or math.ceil(growth.total / PIECES)
    train, held_out = model.inputs(split.train.features), model.inputs(split.held_out.features)
    positive = model.encoding.positive_index(config.task.positive_class)
    while fitted.units < growth.total and not fitted.ended:
        asked = min(every, growth.total - fitted.units)
        units = growth.grow(model.estimator, train, split.train.targets, fitted.units, asked)
        fitted.ended = units < fitted.units + asked
        fitted.units = max(units, fitted.units)
        metrics = model.metrics(held_out, split.held_out.targets, positive)
        _note_progress(fitted, metrics, objective, config.task.patience)
        _report(model, fitted, metrics)


def _note_progress(fitted: Fitted, metrics: dict[str, float], objective: Objective, patience: int | None) -> None:
    """Count the reports without a better value, and end the training when they reach the patience."""
    name, mode = objective
    value = metrics.get(name, math.nan)
    is_better = fitted.best is None or as_loss(value, mode) < as_loss(fitted.best, mode)
    if math.isfinite(value) and is_better:
        fitted.best, fitted.stale = value, 0
    else:
        fitted.stale += 1
    fitted.ended = fitted.ended or (patience is not None and fitted.stale >= patience)


def _fit_folds(config: EstimatorConfig, splits: list[Split], fitted: Fitted, *, native: bool) -> None:
    """Fit an estimator to each fold, report the mean of the metrics after each, and finally fit it to all rows."""
    *folds, everything = splits
    # Some metrics are undefined for held-out rows of a single class; a first report without a value ends a trial.
    folds.sort(key=lambda split: len(np.unique(split.held_out.targets)) < 2)
    for number, split in enumerate(folds[fitted.units :], start=fitted.units + 1):
        model = _fitted_at_once(config, split, native=native)
        held_out = model.inputs(split.held_out.features)
        positive = model.encoding.positive_index(config.task.positive_class)
        fitted.folds.append(model.metrics(held_out, split.held_out.targets, positive))
        fitted.units = number
        if number == len(folds):
            model = _fitted_at_once(config, everything, native=native)
        _report(model, fitted, {name: _mean(name, fitted.folds) for name in fitted.folds[0]})


def _mean(name: str, folds: Sequence[Mapping[str, float]]) -> float:
    """Return the mean of a metric over the folds in which it is defined, unlike ROC AUC of a single class; NaN if it is
    in none, or if the predictions for a fold are not finite, so that it has no loss."""
    if not all(math.isfinite(each["eval/loss"]) for each in folds):
        return fmean(each[name] for each in folds)
    defined = [each[name] for each in folds if not math.isnan(each[name])]
    return fmean(defined) if defined else math.nan


def _fitted_at_once(config: EstimatorConfig, split: Split, *, native: bool) -> EstimatorModel:
    estimator = make_estimator(config.task, config.seed, _num_cpus(), split.encoding)
    model = split.model(estimator, native=native)
    growth = growth_of(estimator)
    growth.grow(estimator, model.inputs(split.train.features), split.train.targets, 0, growth.total)
    return model


def _num_cpus() -> int:
    """Return the number of CPUs that Ray has reserved for this worker."""
    reserved: dict[str, float] = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
    return max(1, int(reserved.get("CPU", 1)))


def _report(model: EstimatorModel, fitted: Fitted, metrics: dict[str, float]) -> None:
    folder = tempfile.mkdtemp()
    model.save(Path(folder))
    (Path(folder) / STATE_FILE).write_text(json.dumps(asdict(fitted)), encoding="utf-8")
    ray.train.report(
        {**metrics, "step": fitted.units},
        checkpoint=ray.train.Checkpoint(folder),
        delete_local_checkpoint_after_upload=True,
    )


def _resumed() -> tuple[EstimatorModel | None, Fitted]:
    """Return the model and the position of the newest checkpoint, if there is one."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return None, Fitted()
    with checkpoint.as_directory() as folder:
        state = json.loads((Path(folder) / STATE_FILE).read_text(encoding="utf-8"))
        return load_estimator(Path(folder)), Fitted(**state)
