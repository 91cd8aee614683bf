"""What a further trial could gain: the largest expected improvement over the best, anywhere in the space.

Expected improvement (Jones et al., 1998, https://doi.org/10.1023/A:1008306431147) under a Gaussian process through the
trials that finished, as a stopping rule: Nguyen et al., 2017 (https://arxiv.org/abs/1708.06674) stop by it, too.
"""

from __future__ import annotations

import math
import random
import warnings

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.search import Mode
from sweeps.constants import NUMBER
from sweeps.search.encoding import UnitSpace
from sweeps.space.distributions import Lookup, Space

MIN_FINISHED = 10
"""Finished trials before anything is said, and in any case one more than there are dimensions."""
NEWEST = 500
"""Trials that the process is fitted to: its time grows with their third power."""
RANDOM_POINTS, POINTS_AROUND, AROUND = 500, 100, 5
"""Where the maximum is sought: at random, and around each of the best trials."""
KEPT = 0.7
"""Share of a good trial's values that a point around it keeps."""


class ExpectedImprovement:
    """Of the best point that could be tried next; recomputed when another trial has finished."""

    def __init__(self, space: Space, lookup: Lookup, mode: Mode, seed: int = 0):
        """
        Args:
            space: Searched.
            lookup: Gives the value of what conditions name but the space does not search.
            mode: Whether a smaller or a larger value is better.
            seed: Of the points at which it is looked for.
        """
        self._space, self._lookup, self._seed = space, lookup, seed
        self._sign = 1.0 if mode == "min" else -1.0
        self._unit = UnitSpace(space)
        self._computed: tuple[int, float | None] = (0, None)

    def largest(self, study: optuna.Study) -> float | None:
        """In units of the metric; None while too few trials have finished to tell."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        finished = [trial for trial in trials if NUMBER in trial.user_attrs]
        if len(finished) < max(MIN_FINISHED, len(self._unit.owners) + 1):
            return None
        if self._computed[0] != len(finished):
            self._computed = len(finished), self._largest(finished)
        return self._computed[1]

    def _largest(self, finished: list[FrozenTrial]) -> float:
        # Late: a second to import, for a rule that few sweeps have.
        from scipy.stats import norm
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel

        finished = sorted(finished, key=lambda trial: trial.number)[-NEWEST:]
        points = [self._unit.point(trial.params) for trial in finished]
        losses = np.array([self._sign * trial.values[0] for trial in finished])
        process = GaussianProcessRegressor(
            Matern(length_scale=np.ones(len(self._unit.owners)), length_scale_bounds=(0.05, 50.0), nu=2.5)
            + WhiteKernel(1e-3, (1e-6, 1.0)),
            normalize_y=True,
            random_state=self._seed,
        )
        with warnings.catch_warnings():  # a length at its bound is an answer, too: the parameter does not matter
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(self._unit.matrix(points), losses)
        best = [points[index] for index in np.argsort(losses)[:AROUND]]
        mean, deviation = process.predict(self._unit.matrix(self._candidates(best)), return_std=True)
        # The noise of single values is no gain: the kernel's white part is taken out.
        noise = math.sqrt(process.kernel_.k2.noise_level) * float(np.std(losses))
        deviation = np.sqrt(np.maximum(deviation**2 - noise**2, 1e-18))
        gain = float(np.min(losses)) - mean
        ratio = gain / deviation
        return float(np.max(gain * norm.cdf(ratio) + deviation * norm.pdf(ratio)))

    def _candidates(self, best: list[dict[str, object]]) -> list[dict[str, object]]:
        drawing = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=self._seed))
        chance = random.Random(self._seed)
        for point in best:
            for _ in range(POINTS_AROUND):
                kept = {path: value for path, value in point.items() if chance.random() < KEPT}
                drawing.enqueue_trial(self._space.encode(kept))
        count = RANDOM_POINTS + len(best) * POINTS_AROUND
        return [self._space.sample(drawing.ask(), self._lookup) for _ in range(count)]
