"""Measured costs of a search's trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from sweeps.search.curve_model.cost import FEWEST, CostModel, fit_costs
from sweeps.search.curve_model.fit import fitted_number
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array


class Costs:
    """Seconds of training per unit of the resource by trial, and a model for new trials."""

    def __init__(self, groups: Sequence[int], vectors: Mapping[str, Array]):
        """
        Args:
            groups: Parameter of each column of a configuration's vector, from 0.
            vectors: Configuration of each trial; it may grow.
        """
        self._groups, self._vectors = groups, vectors
        self._measured: list[tuple[str, float]] = []
        """All measurements, in order."""
        self._fitted: tuple[int, Hyperparameters] | None = None
        """Number of the first measurements to which the model was fitted, and its hyperparameters."""
        self.seconds: dict[str, float] = {}
        """The last measurement of each trial."""

    def add(self, trial: str, seconds: float) -> None:
        """Add a measurement, above 0 seconds."""
        self._measured.append((trial, seconds))
        self.seconds[trial] = seconds
        self.__dict__.pop("usual_seconds", None)

    @cached_property
    def usual_seconds(self) -> float:
        """Median of the trials' last measurements; NaN before the first. Computed on demand after each measurement."""
        return float(np.median([*self.seconds.values()])) if self.seconds else math.nan

    def divisors(self, trials: Sequence[str], new: Array) -> tuple[Array, Array]:
        """Return the factors by which the worth of trials and of new configurations is divided; 1 if costs are
        unknown."""
        of_trials, of_new = np.ones(len(trials)), np.ones(len(new))
        if (at := self._hyperparameters()) is not None:
            model = CostModel(at, self._groups, *self._vectors_and_seconds(self.seconds))
            rows = [row for row, trial in enumerate(trials) if trial in self.seconds]
            of_trials[rows] = model.of_known(np.array([self.seconds[trials[row]] for row in rows]))
            of_new = model.of(new)
        return of_trials, of_new

    def _hyperparameters(self) -> Hyperparameters | None:
        """Return the hyperparameters, fitted to a prefix of the measurements that is the same after a restart."""
        number = fitted_number(len(self._measured))
        if self._fitted is None or self._fitted[0] != number:
            first = dict(self._measured[:number])
            if len(first) < FEWEST:
                return None
            self._fitted = number, fit_costs(self._groups, *self._vectors_and_seconds(first))
        return self._fitted[1]

    def _vectors_and_seconds(self, seconds: dict[str, float]) -> tuple[Array, Array]:
        return np.array([self._vectors[trial] for trial in seconds]), np.array([*seconds.values()])
