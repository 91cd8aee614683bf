"""Population based bandits."""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from ray.tune.experiment import Trial
from ray.tune.schedulers.pb2 import _explore

from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.constants import PARAMETERS, TRIAL
from sweeps.search.population import PopulationTraining
from sweeps.search.unit import position, value_at

PROGRESS_FILE = "progress.parquet"
"""In the folder of all trials: what each has come to, with which values."""


class PopulationBandits(PopulationTraining):
    """Population based training whose new values are those from which a Gaussian process expects the most progress
    until the next comparison (Parker-Holder et al., 2020, https://arxiv.org/abs/2002.02518). The model is Tune's; it
    sees every range from 0 to 1 in its own scale. Before it has seen progress, values are moved at random. What it has
    seen is kept beside the trials, for the next driver."""

    def __init__(self, *arguments: Any, ranges: dict[str, FloatDistribution | IntDistribution], **named: Any):
        """
        Args:
            arguments: As of ``PopulationTraining``.
            ranges: What changes.
            named: As of ``PopulationTraining``.
        """
        super().__init__(*arguments, **named)
        self._ranges = ranges
        self._file = self._trials / PROGRESS_FILE
        self._progress = self._read()
        self._chosen: np.ndarray[Any, Any] | None = None
        """Values chosen since the last time at which something was reported, of shape ``[choices, ranges]``."""
        self._chosen_at = 0.0

    def _save_trial_state(self, state: Any, time: int, result: dict[str, Any], trial: Trial) -> float:
        score = super()._save_trial_state(state, time, result, trial)
        if math.isfinite(score):
            row = [str(trial.config[TRIAL]), float(time), *self._places(trial), score]
            self._progress.loc[len(self._progress)] = row  # one that is reported again is no progress to the model
            self._write()
        return score

    def _read(self) -> pd.DataFrame:
        if not self._file.exists():
            return pd.DataFrame(columns=["Trial", "Time", *self._ranges, "Reward"])
        progress = pd.read_parquet(self._file)
        for path, distribution in self._ranges.items():  # which may be wider now
            progress[path] = [position(distribution, value) for value in progress[path]]
        return progress

    def _write(self) -> None:
        values = {
            path: [value_at(distribution, place) for place in self._progress[path]]
            for path, distribution in self._ranges.items()
        }
        unfinished = self._file.with_suffix(".unfinished")
        self._progress.assign(**values).to_parquet(unfinished)
        unfinished.rename(self._file)

    def _places(self, trial: Trial) -> Sequence[float]:
        parameters = trial.config[PARAMETERS]
        return [position(distribution, parameters[path]) for path, distribution in self._ranges.items()]

    def mutated(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        places = dict(zip(self._ranges, self._places(donor), strict=True))
        bounds = dict.fromkeys(self._ranges, (0.0, 1.0))
        latest = float(self._progress["Time"].max())
        if latest > self._chosen_at:
            self._chosen, self._chosen_at = None, latest
        occasion = self.occasion(trial)
        with warnings.catch_warnings(), _seeded(f"{self._seed}/{occasion}"):
            warnings.simplefilter("ignore")  # of the fit, where there is little to fit
            explore: Any = _explore  # typed by Ray as what it is not
            names = donor.config[TRIAL], trial.config[TRIAL]
            new, self._progress = explore(self._progress, bounds, self._chosen, *names, places)
        self._write()
        parameters = donor.config[PARAMETERS]
        if new == places:
            return self._mutation.near(parameters, occasion)
        row = np.array([[new[path] for path in self._ranges]])
        self._chosen = row if self._chosen is None else np.concatenate((self._chosen, row))
        values = {path: value_at(self._ranges[path], min(max(place, 0.0), 1.0)) for path, place in new.items()}
        changed = self._mutation.with_values(parameters, values, occasion)
        return self._mutation.near(parameters, occasion) if changed is None else changed


@contextlib.contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """Ray's model draws where it begins to search from numpy's generator for everybody, which is put back."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(random.Random(seed).randrange(2**32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
