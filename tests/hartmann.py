"""The multi-fidelity Hartmann functions of mf-prior-bench (Mallik et al., 2023, https://arxiv.org/abs/2306.12370): what
a trial reports after a part of its training, with a bias and a noise that shrink towards the whole of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sweeps.config.space import Distribution, FloatDistribution

ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
WIDTHS = {
    3: np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]]),
    6: np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
                 [17, 8, 0.05, 10, 0.1, 14]]),
}  # fmt: skip
CENTERS = {
    3: np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]) * 1e-4,
    6: np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                 [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]) * 1e-4,
}  # fmt: skip
OPTIMUM = {3: -3.86278, 6: -3.32237}
BEST = {3: (0.114614, 0.555649, 0.852547), 6: (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573)}
LONGEST = 100


@dataclass(frozen=True)
class Hartmann:
    """Function to be minimised; parameters ``x0``, ``x1``, ... from 0 to 1."""

    dimensions: int = 3
    bias: float = 0.5
    noise: float = 0.1
    shift: float = 0.0
    """How far the whole function is moved along every axis, for a task that is like another, but not the same."""

    @property
    def space(self) -> dict[str, Distribution]:
        return {name: FloatDistribution(type="float", low=0, high=1) for name in self._names}

    @property
    def best(self) -> dict[str, float]:
        return dict(zip(self._names, BEST[self.dimensions], strict=True))

    @property
    def _names(self) -> list[str]:
        return [f"x{index}" for index in range(self.dimensions)]

    def regret(
        self, point: dict[str, float], fidelity: int = LONGEST, random: np.random.Generator | None = None
    ) -> float:
        """How far above the optimum, after a part of the training, from 1 to 100; without a generator no noise."""
        left = 1 - np.log(fidelity) / np.log(LONGEST)
        x: npt.NDArray[np.float64] = np.array([point[name] for name in self._names]) - self.shift
        heights = (ALPHA - self.bias * left**2) * np.exp(
            -(WIDTHS[self.dimensions] * (x - CENTERS[self.dimensions]) ** 2).sum(axis=1)
        )
        noise = random.normal() * self.noise * left if random is not None else 0.0
        return float(-heights.sum() - OPTIMUM[self.dimensions] + noise)

    def searched(self, searcher: Any, trials: int) -> tuple[list[dict[str, float]], list[float]]:
        """Points that a searcher suggests one after another, and their regrets."""
        points, regrets = [], []
        for trial in range(trials):
            point = searcher.suggest(str(trial))
            assert point is not None
            points.append(point)
            regrets.append(self.regret(point))
            searcher.on_trial_complete(str(trial), {"loss": regrets[-1], "training_iteration": 1})
        return points, regrets
