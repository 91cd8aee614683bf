"""Estimates the memory of a trial from the memory that other trials used."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sweeps.config.search import Limit
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.unit_cube import UnitCube, Vector
from sweeps.space.space import Space

if TYPE_CHECKING:
    import optuna

    from sweeps.search.advisors.peak_model import PeakModel

KINDS = {"system/gpu_memory_mib": "GPU memory", "system/memory_mib": "memory"}
"""Metrics of one worker's memory, and their names; the first one that trials report is shown."""
MIN_TRIALS = 3
"""Minimum number of trials for an estimate."""
MAX_FITTED = 100
"""Maximum number of trials to which the model is fitted: the time grows with their cube."""
UPDATE_GROWTH = 1.1
"""Minimum growth of the number of trials before the model is fitted to them, as a trial waits for the fit."""
MIN_RELATIVE_ERROR = 0.05
"""Minimum error relative to the estimate: trials that took the same memory may have been similar."""
MIB_OF_GIB = 1024


class Estimate(NamedTuple):
    """Peak memory of one worker, in MiB."""

    mib: float
    error: float
    """One standard deviation."""


class MemoryEstimate(Advisor):
    """Predicts the peak memory of a trial's worker from the memory that earlier trials reported; as an advisor, it
    refuses points that need too much.

    The error grows far from the trials, and if the peaks do not depend on the parameters. On GPUs the peak is the
    memory that PyTorch allocated; on CPUs it is the resident memory of the process, and a warm worker keeps some of it
    from one trial to the next.

    Example:
        >>> from sweeps.search import IntDistribution, MemoryEstimate, Space
        >>> memory = MemoryEstimate(Space({"width": IntDistribution(type="int", low=1, high=1024)}))
        >>> for trial, width in enumerate([128, 256, 512, 1024]):
        ...     memory.observe(trial, {"width": width}, {"system/gpu_memory_mib": 2048 + 8 * width})
        >>> 5500 < memory.estimate({"width": 512}, "system/gpu_memory_mib").mib < 7000
        True
    """

    def __init__(
        self, space: Space, limits: Mapping[str, Limit] | None = None, room: Mapping[str, float] | None = None
    ):
        """
        Args:
            space: Space of the points.
            limits: Bounds of reported metrics; a point that will exceed a memory bound is refused.
            room: Memory of a worker in MiB, by metric, as far as known before workers report it.
        """
        self._unit = UnitCube(space)
        self._limits, self._room = limits or {}, room or {}
        self._reported_room: dict[str, float] = {}
        self._vectors: dict[Hashable, Vector] = {}
        self._fitted: dict[str, tuple[int, PeakModel]] = {}
        """Number of trials to which each metric's model was fitted, and the model."""
        self._peaks: dict[str, dict[Hashable, float]] = {metric: {} for metric in KINDS}

    def observe(self, trial: Hashable, point: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Add the memory that a worker of a trial reported.

        Args:
            trial: Identifies the trial.
            point: Parameters of the trial, by path.
            metrics: The reported metrics.
        """
        for metric, peaks in self._peaks.items():
            value = metrics.get(metric, math.nan)
            if value > peaks.get(trial, 0.0) and math.isfinite(value):
                if trial not in self._vectors:  # before its peak, with which another thread looks for it
                    self._vectors[trial] = self._unit.vector(point)
                peaks[trial] = value

    def observe_limits(self, metrics: Mapping[str, float]) -> None:
        """Update the memory available to workers from their reports; the smallest value applies.

        Args:
            metrics: The reported metrics of this cluster's workers.
        """
        for metric in KINDS:
            reported = metrics.get(metric.replace("_mib", "_limit_mib"))
            if reported is not None:
                self._reported_room[metric] = min(reported, self._reported_room.get(metric, math.inf))

    def estimate(self, point: Mapping[str, Any], metric: str) -> Estimate | None:
        """Return the estimate of a metric of ``KINDS`` at a point; None while there are too few trials."""
        peaks = dict(self._peaks[metric])  # a copy: another thread may observe more meanwhile
        if len(peaks) < MIN_TRIALS or not self._unit.columns:
            return None
        number, model = self._fitted.get(metric, (0, None))
        if model is None or len(peaks) >= UPDATE_GROWTH * number:
            model = self._fit(peaks, model)
            self._fitted[metric] = len(peaks), model
        mib, error = model.predict(self._unit.vector(point))
        return Estimate(mib, mib * max(error, MIN_RELATIVE_ERROR))

    def _fit(self, peaks: Mapping[Hashable, float], before: PeakModel | None) -> PeakModel:
        # Not in a thread: while another one imports a part of scipy, each may get half a module.
        from sweeps.search.advisors.peak_model import PeakModel

        newest = list(peaks)[-MAX_FITTED:]
        vectors = np.array([self._vectors[trial] for trial in newest])
        return PeakModel(
            vectors,
            self._unit.groups,
            [peaks[trial] for trial in newest],
            None if before is None else before.hyperparameters,
        )

    def describe(self, point: Mapping[str, Any]) -> str:
        """Describe the estimate, as ``about 1.3 GiB of memory a worker (+-0.2)``, with a warning if a worker has less.

        Returns:
            The text; empty while there is no estimate.
        """
        for metric, name in KINDS.items():
            estimate = self.estimate(point, metric)
            if estimate is None:
                continue
            text = f"about {_gib(estimate.mib)} GiB of {name} a worker (+-{_gib(estimate.error)})"
            room = self._reported_room.get(metric, self._room.get(metric))
            return text if room is None or estimate.mib <= room else f"{text}, MORE THAN THE {_gib(room)} THAT IT HAS"
        return ""

    # --- the advisor --------------------------------------------------------------------------------------------

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """Return the reason to refuse a point that will exceed a limit on memory, even if it takes less than estimated;
        None if there is none."""
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
