"""Population based bandits."""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from ray.tune.experiment import Trial
from ray.tune.schedulers.pb2 import _explore

from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.constants import PARAMETERS, TRIAL
from sweeps.search.encoding import ends_of, position, value_at
from sweeps.search.schedulers.decisions import ORDER
from sweeps.search.schedulers.pbt import PopulationTraining


class PopulationBandits(PopulationTraining):
    """Population based training whose new values are those from which a Gaussian process expects the most progress
    until the next comparison (Parker-Holder et al., 2020, https://arxiv.org/abs/2002.02518). The model is Tune's; it
    sees every range from 0 to 1 in its own scale. Before it has seen progress, values are moved at random."""

    def __init__(self, *arguments: Any, ranges: dict[str, FloatDistribution | IntDistribution], **named: Any):
        """
        Args:
            arguments: As of ``PopulationTraining``.
            ranges: What changes.
            named: As of ``PopulationTraining``.
        """
        self._ranges = ranges
        self._rows: list[list[Any]] = []
        """Data of the model: trial, time, the place of each value in its range, reward."""
        self._compared_row: list[Any] | None = None
        self._explored_rows: list[list[Any]] = []
        """Data added by the report at hand: the trial as it was, and as it goes on."""
        self._chosen: list[list[float]] = []
        """Places chosen since the last time at which something was reported."""
        self._chosen_at = 0.0
        self._choice: list[float] | None = None
        """Places chosen on the report at hand."""
        super().__init__(*arguments, **named)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._compared_row, self._explored_rows, self._choice = None, [], None
        return super().on_trial_result(tune_controller, trial, result)

    def _save_trial_state(self, state: Any, time: int, result: dict[str, Any], trial: Trial) -> float:
        score = super()._save_trial_state(state, time, result, trial)
        if math.isfinite(score):
            # A report that is heard again is no progress to the model.
            self._compared_row = [str(trial.config[TRIAL]), float(time), *self._places(trial), score]
            self._rows.append(self._compared_row)
        return score

    def _decision(self, trial: Trial, *, paused: bool) -> dict[str, Any]:
        ends = [list(ends_of(each)) for each in self._ranges.values()]
        seen = {"row": self._compared_row, "explored": self._explored_rows, "choice": self._choice, "ends": ends}
        return {**super()._decision(trial, paused=paused), **seen}

    def _learn(self, trial: str, event: Mapping[str, Any]) -> None:
        super()._learn(trial, event)
        if event["event"] != "compared":
            return
        if event["row"] is not None:
            self._rows.append(self._in_range(event["row"], event["ends"]))
        if ORDER in event:  # it went on from another one's state
            self._forget_choices()
        self._rows += [self._in_range(row, event["ends"]) for row in event["explored"]]
        if event["choice"] is not None:
            (_, _, *places, _) = self._in_range(["", 0.0, *event["choice"], 0.0], event["ends"])
            self._chosen.append(places)

    def _in_range(self, row: list[Any], ends: list[list[float]]) -> list[Any]:
        """A row that was seen with ranges of these ends, which may be wider now."""
        name, time, *places, reward = row
        for index, (distribution, (low, high)) in enumerate(zip(self._ranges.values(), ends, strict=True)):
            now_low, now_high = ends_of(distribution)
            if (low, high) != (now_low, now_high):
                places[index] = (low + places[index] * (high - low) - now_low) / (now_high - now_low)
        return [name, time, *places, reward]

    def _places(self, trial: Trial) -> Sequence[float]:
        parameters = trial.config[PARAMETERS]
        return [position(distribution, parameters[path]) for path, distribution in self._ranges.items()]

    def _forget_choices(self) -> None:
        """Those of before the last report."""
        latest = max((row[1] for row in self._rows), default=0.0)
        if latest > self._chosen_at:
            self._chosen, self._chosen_at = [], latest

    def mutated(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        places = dict(zip(self._ranges, self._places(donor), strict=True))
        self._forget_choices()
        occasion = self.occasion(trial)
        new = self._explored(trial, donor, places)
        parameters = donor.config[PARAMETERS]
        if new == places:
            return self._mutation.near(parameters, occasion)
        self._choice = [float(new[path]) for path in self._ranges]
        self._chosen.append(self._choice)
        values = {path: value_at(self._ranges[path], min(max(place, 0.0), 1.0)) for path, place in new.items()}
        changed = self._mutation.with_values(parameters, values, occasion)
        return self._mutation.near(parameters, occasion) if changed is None else changed

    def _explored(self, trial: Trial, donor: Trial, places: Mapping[str, float]) -> dict[str, float]:
        """The places that the model chooses; those of the donor, if it has seen no progress of that."""
        columns = ["Trial", "Time", *self._ranges, "Reward"]
        # Made anew each time, so that neither types nor the order of equal times depend on how the rows came.
        seen = pd.DataFrame(self._rows, columns=columns).astype(dict.fromkeys(columns[1:], float))
        bounds = dict.fromkeys(self._ranges, (0.0, 1.0))
        chosen = np.array(self._chosen) if self._chosen else None
        with warnings.catch_warnings(), _seeded(f"{self._seed}/{self.occasion(trial)}"):
            warnings.simplefilter("ignore")  # of the fit, where there is little to fit
            explore: Any = _explore  # typed by Ray as what it is not
            new, after = explore(seen, bounds, chosen, donor.config[TRIAL], trial.config[TRIAL], dict(places))
        rows = after.iloc[len(seen) :].itertuples(index=False)
        self._explored_rows = [[str(row[0]), *map(float, row[1:])] for row in rows]
        self._rows += self._explored_rows
        return dict(new)


@contextlib.contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """Ray's model draws where it begins to search from numpy's generator for everybody, which is put back."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(random.Random(seed).randrange(2**32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
