"""Learning curves for points that a table lacks: predicted by a forest fitted to the table, or taken from the nearest
configuration."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeps.errors import UserError
from sweeps.search.samplers.study_curves import spaced
from sweeps.search.unit_cube import UnitCube
from sweeps.simulate.recorded_table import CurveTable, RecordedTrial, Report, point_key
from sweeps.space.space import Point, Space

Array = npt.NDArray[np.float64]

NUM_TREES = 50
FOLDS = 3
"""Parts into which the configurations are split to measure the error: each is predicted from the others."""
MAX_FITTED = 16
"""Maximum steps of a curve to which the forest is fitted, evenly spaced in the logarithm; the others are
interpolated."""


@dataclass(frozen=True)
class SurrogateError:
    """Error of predictions for configurations that were left out when the forest was fitted."""

    rmse: float
    """Root mean squared error of the metric at the last step, in its own unit."""
    spread: float
    """Standard deviation of the recorded values at the last step: the error of always predicting their mean."""
    rank_correlation: float
    """Spearman's correlation of predicted and recorded values at the last step."""


class NearestCurve:
    """Source that returns the recorded curve of the nearest configuration that was trained to the end."""

    def __init__(self, table: CurveTable, space: Space):
        self._table, self._cube = table, UnitCube(space)
        self._whole = table.whole
        self._matrix = self._cube.matrix([trial.point for trial in self._whole])

    def curve(self, point: Point) -> list[Report]:
        """Return the curve of the point itself if the table has it to the end, otherwise that of the nearest
        configuration."""
        distances = ((self._matrix - self._cube.vector(point)) ** 2).sum(axis=1)
        return self._whole[int(np.argmin(distances))].reports


class ForestCurve:
    """Source that returns the recorded curve if there is one, otherwise a prediction of extremely randomised trees.

    The trees predict each metric, and the logarithm of the seconds between two reports, from the point and the step. A
    recorded curve that was stopped early continues with the prediction, shifted so that both meet. Counts, such as
    epochs, are those of the nearest configuration that was trained to the end: a scheduler compares trials where they
    reach a number exactly.
    """

    def __init__(self, table: CurveTable, space: Space, metrics: Sequence[str], counts: Collection[str] = ()):
        """
        Args:
            metrics: Metrics to predict; ``error`` is that of the first.
            counts: Reported numbers that grow with the step.

        Raises:
            UserError: There is nothing to fit the forest to.
        """
        self._table, self._cube = table, UnitCube(space)
        self._nearest, self._counts = NearestCurve(table, space), counts
        longest = max(table.trials, key=lambda trial: trial.reports[-1].step)
        self._steps = [report.step for report in longest.reports]
        self._names = list(metrics)
        self._skipped = set(self._steps) - set(spaced(self._steps, MAX_FITTED))
        rows = [self._rows(trial) for trial in table.trials]
        if not any(len(features) for features, _ in rows):
            raise UserError(
                f"--between=forest: at the steps to which a forest is fitted, no report in {table.name} has finite "
                f"values of all of {', '.join(metrics)}; use --between=nearest"
            )
        self._forest = self._fit(rows)
        self.error = self._error(rows)
        """Error at the last step."""

    def curve(self, point: Point) -> list[Report]:
        """Return all reports of a trial at a point."""
        recorded = self._table.by_point.get(point_key(point))
        if recorded is not None and recorded.reports[-1].step == self._steps[-1]:
            return recorded.reports
        predicted = self._predicted(point)
        return predicted if recorded is None else _continued(recorded, predicted, self._counts)

    def _rows(self, trial: RecordedTrial) -> tuple[Array, Array]:
        """Return the features and targets of a configuration, with a row for each step to which the forest is
        fitted."""
        before, kept = 0.0, []
        for report in trial.reports:
            between = math.log(max(report.elapsed_s - before, 1e-9))
            before = report.elapsed_s
            values = [report.metrics[name] for name in self._names]
            if all(map(math.isfinite, values)) and report.step not in self._skipped:
                kept.append((report.step, [*values, between]))
        vector = self._cube.vector(trial.point)
        features = [[*vector, math.log1p(step)] for step, _ in kept]
        return (
            np.array(features).reshape(len(kept), len(vector) + 1),
            np.array([targets for _, targets in kept]).reshape(len(kept), len(self._names) + 1),
        )

    def _fit(self, rows: Sequence[tuple[Array, Array]], trees: int = NUM_TREES) -> Any:
        from sklearn.ensemble import ExtraTreesRegressor

        features, targets = np.concatenate([each for each, _ in rows]), np.concatenate([each for _, each in rows])
        # Scale each target, since a tree's splits minimise the sum of their variances.
        center, scale = targets.mean(axis=0), np.maximum(targets.std(axis=0), 1e-12)
        forest = ExtraTreesRegressor(trees, random_state=0).fit(features, (targets - center) / scale)
        return forest, center, scale

    def _targets(self, forest: Any, features: Array) -> Array:
        model, center, scale = forest
        # Not ``model.predict``, which starts a pool of threads for the few rows of a curve.
        rows = features.astype(np.float32)
        predicted = np.mean([tree.tree_.predict(rows) for tree in model.estimators_], axis=0)
        return np.asarray(predicted.reshape(len(features), -1) * scale + center)

    def _predicted(self, point: Point) -> list[Report]:
        vector = self._cube.vector(point)
        features = np.array([[*vector, math.log1p(step)] for step in self._steps])
        targets = self._targets(self._forest, features)
        elapsed, nearest = np.cumsum(np.exp(targets[:, -1])), self._nearest.curve(point)
        known = [0, *(report.step for report in nearest)]
        columns = dict(zip(self._names, targets[:, :-1].T, strict=True)) | {
            name: np.interp(self._steps, known, [0.0, *(report.metrics[name] for report in nearest)])
            for name in self._counts
        }
        return [
            Report(step, float(seconds), {name: float(values[index]) for name, values in columns.items()})
            for index, (step, seconds) in enumerate(zip(self._steps, elapsed, strict=True))
        ]

    def _error(self, rows: Sequence[tuple[Array, Array]]) -> SurrogateError | None:
        """Return the cross-validated error at the last step; None if too few configurations were trained to the end."""
        from scipy.stats import spearmanr

        last = math.log1p(self._steps[-1])
        whole = [index for index, (features, _) in enumerate(rows) if len(features) and features[-1, -1] == last]
        if len(whole) < 2 * FOLDS:
            return None
        fold_of = np.random.default_rng(0).permutation(len(rows)) % FOLDS
        predicted, recorded = [], []
        for fold in range(FOLDS):
            left = [index for index in whole if fold_of[index] == fold]
            if not left:
                continue
            forest = self._fit([each for index, each in enumerate(rows) if fold_of[index] != fold], NUM_TREES // 2)
            predicted += list(self._targets(forest, np.array([rows[index][0][-1] for index in left]))[:, 0])
            recorded += [rows[index][1][-1, 0] for index in left]
        error = np.array(predicted) - np.array(recorded)
        varies = np.ptp(predicted) > 0 and np.ptp(recorded) > 0  # SciPy warns of a correlation with a constant
        correlation = float(spearmanr(predicted, recorded).statistic) if varies else 0.0
        return SurrogateError(float(np.sqrt(np.mean(error**2))), float(np.std(recorded)), correlation)


def _continued(recorded: RecordedTrial, predicted: Sequence[Report], counts: Collection[str]) -> list[Report]:
    """Continue a recorded curve that ends early with a predicted one, whose metrics, except counts, are shifted to meet
    it."""
    end = recorded.reports[-1]
    meets = min(predicted, key=lambda report: abs(report.step - end.step))
    shift = {name: 0.0 if name in counts else end.metrics[name] - meets.metrics[name] for name in meets.metrics}
    rest = [
        Report(
            report.step,
            end.elapsed_s + report.elapsed_s - meets.elapsed_s,
            {name: value + shift[name] for name, value in report.metrics.items()},
        )
        for report in predicted
        if report.step > end.step and all(map(math.isfinite, shift.values()))
    ]
    return [*recorded.reports, *rest]
