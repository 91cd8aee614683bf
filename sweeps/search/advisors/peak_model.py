"""Model of the peaks of memory of trials: a Gaussian process of their logarithms in the unit cube."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sweeps.search.curve_model.fit import fit
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, observe_one_rung
from sweeps.search.curve_model.posterior import Posterior
from sweeps.search.curve_model.threads import on_one_thread


class PeakModel:
    """The model of learning curves with a single rung, fitted to peaks."""

    @on_one_thread
    def __init__(self, vectors: Array, groups: Sequence[int], peaks: Sequence[float], start: Hyperparameters | None):
        """
        Args:
            vectors: Points in the unit cube, of shape ``[trials, columns]``.
            groups: Parameter of each column, from 0.
            peaks: Peak of each trial.
            start: Hyperparameters of an earlier model, at which the fit starts.
        """
        logarithms = np.log(peaks)
        self._mean, self._scale = float(logarithms.mean()), float(logarithms.std()) or 1.0
        data = observe_one_rung(vectors, (logarithms - self._mean) / self._scale)
        self.hyperparameters = fit(data, groups, rungs=1, start=start)
        self._posterior = Posterior(self.hyperparameters, groups, data)

    def predict(self, vector: Array) -> tuple[float, float]:
        """Return the expected peak at a point, and its error: one standard deviation, relative to the peak."""
        (mean,), (deviation,) = self._posterior.predict(vector[None], rung=0)
        noise = math.exp(self.hyperparameters.log_noise[0])
        return (
            math.exp(self._mean + self._scale * mean),
            math.expm1(self._scale * math.sqrt(deviation**2 + noise)),
        )
