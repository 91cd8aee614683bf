"""SMAC3's multi-fidelity facade (a random forest with Hyperband), with its defaults, by ``ask`` and ``tell``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from searched.axes import to_point
from searched.configuration_space import configuration_space
from searched.peer import Decision, Job, top_rung
from sweeps.space.space import Space

MAX_TRIALS = 10_000


class Smac:
    """SMAC. A configuration that it trains again with a larger budget goes on where it was."""

    def __init__(self, space: Space, seed: int, longest: int):
        from smac import MultiFidelityFacade, Scenario

        self._space, self._longest, self._top = space, longest, top_rung(longest)
        self._folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            configuration_space(space, seed),
            deterministic=True,
            n_trials=MAX_TRIALS,
            min_budget=1,
            max_budget=self._top,
            seed=seed,
            output_directory=Path(self._folder.name),
        )
        self._smac = MultiFidelityFacade(scenario, lambda config, seed, budget: 0.0, overwrite=True, logging_level=50)
        self._numbers: dict[Any, int] = {}
        self._running: dict[int, Any] = {}

    def next(self) -> Job | None:
        asked = self._smac.ask()
        number = self._numbers.setdefault(asked.config, len(self._numbers))
        self._running[number] = asked
        return Job(number, to_point(self._space, dict(asked.config)))

    def report(self, number: int, progress: int, loss: float) -> Decision:
        from smac.runhistory.dataclasses import TrialValue

        asked = self._running[number]
        until = self._longest if asked.budget >= self._top else round(asked.budget)
        if progress < until:
            return "continue"
        self._smac.tell(self._running.pop(number), TrialValue(cost=loss), save=False)
        return "pause"
