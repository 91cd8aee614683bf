"""Population based bandits (PB2)."""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sweeps.config.space import FloatDistribution, IntDistribution
from sweeps.search.schedulers.decisions import ORDER
from sweeps.search.schedulers.pbt import PopulationBasedTraining
from sweeps.search.schedulers.scheduler import Result, ScheduledTrial
from sweeps.search.unit_cube import position, scaled_bounds, value_at

Explore = Callable[..., tuple[dict[str, float], pd.DataFrame]]
"""A model that finds new values for a trial: ``explore_by_pb2`` of ``sweeps.compat.ray_tune``."""


class PopulationBasedBandits(PopulationBasedTraining):
    """Population based bandits (Parker-Holder et al., 2020, https://arxiv.org/abs/2002.02518).

    Population based training whose new values are those from which a Gaussian process expects the most progress until
    the next comparison. The process sees each value as a position from 0 to 1 in its range, on the
    range's own scale. Until it has seen a donor make progress, the donor's values are perturbed at random.
    """

    def __init__(
        self,
        *arguments: Any,
        ranges: dict[str, FloatDistribution | IntDistribution],
        explore: Explore | None,
        **named: Any,
    ):
        """
        Args:
            arguments: As in ``PopulationBasedTraining``.
            ranges: The values that change, by path.
            explore: The Gaussian process; None: no model.
            named: As in ``PopulationBasedTraining``.
        """
        self._ranges, self._explore_by = ranges, explore
        self._rows: list[list[Any]] = []
        """Data of the model: trial, time, the positions of its values, score."""
        self._chosen: list[list[float]] = []
        """Positions that the model has chosen and whose progress no later comparison has measured yet."""
        self._chosen_at = 0.0
        # State while one report is handled: the trial's row, its rows after new values, and its chosen positions.
        self._compared_row: list[Any] | None = None
        self._explored_rows: list[list[Any]] = []
        self._choice: list[float] | None = None
        super().__init__(*arguments, **named)

    def compare(self, trial: ScheduledTrial, result: Result) -> None:
        super().compare(trial, result)
        self._compared_row, self._explored_rows, self._choice = None, [], None
        member = self._members[trial.id]
        if member.score is not None and math.isfinite(member.score):
            self._compared_row = [trial.id, float(member.reached), *self._positions(trial).values(), member.score]
            self._rows.append(self._compared_row)

    def event(self, trial: ScheduledTrial, *, paused: bool) -> dict[str, Any]:
        ends = [list(scaled_bounds(each)) for each in self._ranges.values()]
        seen = {"row": self._compared_row, "explored": self._explored_rows, "choice": self._choice, "ends": ends}
        return {**super().event(trial, paused=paused), **seen}

    def replay(self, number: str, event: Mapping[str, Any]) -> None:
        super().replay(number, event)
        if event["event"] != "compared":
            return
        if event["row"] is not None:
            self._rows.append(self._in_range(event["row"], event["ends"]))
        if ORDER in event:  # the trial continued from another trial's state
            self._forget_choices()
        self._rows += [self._in_range(row, event["ends"]) for row in event["explored"]]
        if event["choice"] is not None:
            (_, _, *positions, _) = self._in_range(["", 0.0, *event["choice"], 0.0], event["ends"])
            self._chosen.append(positions)

    def _in_range(self, row: list[Any], ends: list[list[float]]) -> list[Any]:
        """Convert a row recorded with these bounds to the current ranges, which may be wider."""
        number, time, *positions, score = row
        for index, (distribution, (low, high)) in enumerate(zip(self._ranges.values(), ends, strict=True)):
            now_low, now_high = scaled_bounds(distribution)
            if (low, high) != (now_low, now_high):
                positions[index] = (low + positions[index] * (high - low) - now_low) / (now_high - now_low)
        return [number, time, *positions, score]

    def _positions(self, trial: ScheduledTrial) -> dict[str, float]:
        return {path: position(distribution, trial.parameters[path]) for path, distribution in self._ranges.items()}

    def _forget_choices(self) -> None:
        """Forget the points that the model has chosen, once a later comparison has measured their progress."""
        latest = max((row[1] for row in self._rows), default=0.0)
        if latest > self._chosen_at:
            self._chosen, self._chosen_at = [], latest

    def new_values(self, trial: ScheduledTrial, donor: ScheduledTrial) -> dict[str, Any]:
        self._forget_choices()
        parameters, occasion, positions = donor.parameters, self.occasion(trial), self._positions(donor)
        new = self._explore(trial, donor, positions)
        if new == positions:
            return self._mutation.near(parameters, occasion)
        self._choice = [float(new[path]) for path in self._ranges]
        self._chosen.append(self._choice)
        values = {path: value_at(self._ranges[path], min(max(at, 0.0), 1.0)) for path, at in new.items()}
        changed = self._mutation.with_values(parameters, values, occasion)
        return self._mutation.near(parameters, occasion) if changed is None else changed

    def _explore(
        self, trial: ScheduledTrial, donor: ScheduledTrial, positions: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the positions that the model chooses; the donor's, if the model has seen no progress of the donor."""
        if self._explore_by is None:
            return dict(positions)
        columns = ["Trial", "Time", *self._ranges, "Reward"]
        # A new frame each time: neither types nor the order of equal times depend on how the rows were collected.
        seen = pd.DataFrame(self._rows, columns=columns).astype(dict.fromkeys(columns[1:], float))
        bounds = dict.fromkeys(self._ranges, (0.0, 1.0))
        chosen = np.array(self._chosen) if self._chosen else None
        with warnings.catch_warnings(), _numpy_seed(f"{self._seed}/{self.occasion(trial)}"):
            warnings.simplefilter("ignore")  # of a fit to few rows
            new, after = self._explore_by(seen, bounds, chosen, donor.id, trial.id, positions)
        rows = after.iloc[len(seen) :].itertuples(index=False)
        self._explored_rows = [[str(row[0]), *map(float, row[1:])] for row in rows]
        self._rows += self._explored_rows
        return dict(new)


@contextlib.contextmanager
def _numpy_seed(seed: str) -> Iterator[None]:
    """Seed numpy's global generator, which the model draws from, and restore it afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(random.Random(seed).randrange(2**32))  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
