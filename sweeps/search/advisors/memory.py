"""How much memory a point will take, from what other trials took."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sweeps.config.search import Limit
from sweeps.search.encoding import UnitSpace, Vector
from sweeps.space.distributions import Space

if TYPE_CHECKING:
    import optuna
    from sklearn.gaussian_process import GaussianProcessRegressor

KINDS = {"system/gpu_memory_mib": "GPU memory", "system/memory_mib": "memory"}
"""Metrics of one worker's memory, and how they are called; the first that trials report is the one that is shown."""
FEWEST = 3
"""Trials before anything is said."""
NEWEST = 100
"""Trials that it is fitted to: its time grows with their third power."""
AGAIN_AFTER = 2.0
"""Growth in trials after which the process's lengths are sought anew."""
LEAST_ERROR = 0.05
"""Part of the estimate below which no error bar is believed: trials that took the same may have been alike."""
MIB_OF_GIB = 1024


class Estimate(NamedTuple):
    """Peak memory of one worker, in MiB."""

    mib: float
    error: float
    """One standard deviation."""


class _Fitted(NamedTuple):
    process: GaussianProcessRegressor
    number: int
    """Trials that it was fitted to."""
    searched_at: int
    """Trials from which its lengths were found."""


class MemoryEstimate:
    """Predicts the peak memory of a trial's worker from what earlier trials reported.

    A Gaussian process (scikit-learn's) through the logarithms of the peaks, in the unit cube; its error bar grows where
    few trials were, and where the peaks do not follow the parameters. On GPUs the peak is what PyTorch allocated; on
    CPUs it is the resident memory of the process, of which a warm worker keeps some from one trial to the next.
    """

    def __init__(
        self, space: Space, limits: Mapping[str, Limit] | None = None, room: Mapping[str, float] | None = None
    ):
        """
        Args:
            space: Of the points.
            limits: Bounds of reported metrics: points that will be above one of memory are refused.
            room: What a worker has of each kind of memory, in MiB, where that is known; by metric.
        """
        self._unit = UnitSpace(space)
        self._limits, self._room = limits or {}, room or {}
        self._vectors: dict[Hashable, Vector] = {}
        self._fitted: dict[str, _Fitted] = {}
        self._peaks: dict[str, dict[Hashable, float]] = {metric: {} for metric in KINDS}

    def observe(self, trial: Hashable, point: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """
        Args:
            trial: Identifies the trial.
            point: Its parameters, by path.
            metrics: That one of its workers reported.
        """
        for metric, peaks in self._peaks.items():
            value = metrics.get(metric, math.nan)
            if value > peaks.get(trial, 0.0) and math.isfinite(value):
                peaks[trial] = value
                if trial not in self._vectors:
                    self._vectors[trial] = self._unit.vector(point)

    def estimate(self, point: Mapping[str, Any], metric: str) -> Estimate | None:
        """None while too little is known."""
        peaks = dict(self._peaks[metric])  # it may be told more meanwhile, on another thread
        if len(peaks) < FEWEST or not self._unit.owners:
            return None
        fitted = self._fitted.get(metric)
        if fitted is None or fitted.number != len(peaks):
            fitted = self._fitted[metric] = self._fit(peaks, fitted)
        mean, deviation = fitted.process.predict(self._unit.vector(point)[None], return_std=True)
        mib = math.exp(mean[0])
        return Estimate(mib, mib * max(math.expm1(deviation[0]), LEAST_ERROR))

    def _fit(self, peaks: Mapping[Hashable, float], before: _Fitted | None) -> _Fitted:
        """To a few more trials with the lengths of before: finding those takes a hundred times as long, in which a
        trial waits for its start."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, WhiteKernel

        newest = list(peaks)[-NEWEST:]
        vectors = np.array([self._vectors[trial] for trial in newest])
        if before is not None and len(peaks) < AGAIN_AFTER * before.searched_at:
            searched_at, kernel, optimizer = before.searched_at, before.process.kernel_, None
        else:
            lengths = RBF(np.ones(vectors.shape[1]), length_scale_bounds=(0.1, 100.0))
            searched_at, kernel, optimizer = len(peaks), lengths + WhiteKernel(0.01, (1e-4, 1.0)), "fmin_l_bfgs_b"
        process = GaussianProcessRegressor(kernel, optimizer=optimizer, normalize_y=True, random_state=0)
        with warnings.catch_warnings():  # a length at its bound is an answer, too: the parameter does not matter
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(vectors, np.log([peaks[trial] for trial in newest]))
        return _Fitted(process, len(peaks), searched_at)

    def describe(self, point: Mapping[str, Any]) -> str:
        """Such as ``about 1.3 GiB of memory a worker (+-0.2)``, with a warning where it has less; empty while nothing
        is known."""
        for metric, name in KINDS.items():
            estimate = self.estimate(point, metric)
            if estimate is None:
                continue
            text = f"about {_gib(estimate.mib)} GiB of {name} a worker (+-{estimate.error / MIB_OF_GIB:.1g})"
            room = self._room.get(metric)
            return text if room is None or estimate.mib <= room else f"{text}, MORE THAN THE {_gib(room)} THAT IT HAS"
        return ""

    # --- an advisor, too ----------------------------------------------------------------------------------------

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        """Memory is no reason to try anything."""
        return {}

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """A point that will be beyond a limit on memory, even if it takes less than estimated."""
        for metric in KINDS:
            limit = self._limits.get(metric)
            if limit is None or limit.max is None:
                continue
            estimate = self.estimate(point, metric)
            if estimate is not None and estimate.mib - 2 * estimate.error > limit.max:
                return f"{metric} will be about {estimate.mib:.0f}, above its limit of {limit.max:g}"
        return None


def _gib(mib: float) -> str:
    gib = mib / MIB_OF_GIB
    return f"{gib:.2g}" if gib < 10 else f"{gib:.0f}"
