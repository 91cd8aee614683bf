"""Largest expected improvement over the best trial, anywhere in the space: a stop rule.

Expected improvement (Jones et al., 1998, https://doi.org/10.1023/A:1008306431147) under a Gaussian process fitted to
the finished trials; Nguyen et al., 2017 (https://arxiv.org/abs/1708.06674) stop by it as well.

The evaluators of ``optuna.terminator`` (Optuna 5.0) do not replace it. They estimate other quantities, an upper bound
of the regret (``RegretBoundEvaluator``) and the expected minimum regret of the model (``EMMREvaluator``), which
``search.stop.expected_improvement`` could not be compared with: on the tests' function of four parameters, after 80
trials and 0.0014 above the optimum, they return 0.45 and 0.20 where the expected improvement is 0.0003; on pure noise
0.50 and 2.7 where it is 0.05. They also leave out every parameter with a condition, and reject a space in which all
parameters have one.
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
from sweeps.search.encoding import UnitCube
from sweeps.space.distributions import Lookup, Space

MIN_FINISHED = 10
"""Fewest finished trials to fit the process to; it also needs one more than there are dimensions."""
MAX_FITTED = 500
"""Most trials to fit the process to: the time grows with their third power."""
RANDOM_POINTS, POINTS_AROUND, NUM_BEST = 500, 100, 5
"""Candidates for the maximum: random points, and points around each of the best trials; number of these trials."""
KEEP_PROBABILITY = 0.7
"""Probability with which a point around a good trial keeps each of its values."""


class ExpectedImprovement:
    """Largest expected improvement over the space, recomputed when another trial has finished.

    Example:
        >>> import optuna
        >>> from sweeps.search import ExpectedImprovement, FloatDistribution, Space
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> improvement = ExpectedImprovement(space, lambda path: None, "min")
        >>> improvement.largest(optuna.create_study()) is None
        True
    """

    def __init__(self, space: Space, lookup: Lookup, mode: Mode, seed: int = 0):
        """
        Args:
            space: Space of the search.
            lookup: Returns the config's own value at a path, for conditions on paths that are not searched.
            mode: Whether a smaller or a larger value is better.
            seed: Seed of the points among which the maximum is searched.
        """
        self._space, self._lookup, self._seed = space, lookup, seed
        self._sign = 1.0 if mode == "min" else -1.0
        self._unit = UnitCube(space)
        self._computed: tuple[int, float | None] = (0, None)

    def largest(self, study: optuna.Study) -> float | None:
        """The largest expected improvement, in units of the metric; None while too few trials have finished."""
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        finished = [trial for trial in trials if NUMBER in trial.user_attrs]
        if len(finished) < max(MIN_FINISHED, len(self._unit.columns) + 1):
            return None
        if self._computed[0] != len(finished):
            self._computed = len(finished), self._largest(finished)
        return self._computed[1]

    def _largest(self, finished: list[FrozenTrial]) -> float:
        # Imported here: it takes a second, for a rule that few sweeps have.
        from scipy.stats import norm
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel

        finished = sorted(finished, key=lambda trial: trial.number)[-MAX_FITTED:]
        points = [self._unit.point(trial.params) for trial in finished]
        losses = np.array([self._sign * trial.values[0] for trial in finished])
        process = GaussianProcessRegressor(
            Matern(length_scale=np.ones(len(self._unit.columns)), length_scale_bounds=(0.05, 50.0), nu=2.5)
            + WhiteKernel(1e-3, (1e-6, 1.0)),
            normalize_y=True,
            random_state=self._seed,
        )
        with warnings.catch_warnings():  # a length scale at its bound is fine: the parameter does not matter
            warnings.simplefilter("ignore", ConvergenceWarning)
            process.fit(self._unit.matrix(points), losses)
        best = [points[index] for index in np.argsort(losses)[:NUM_BEST]]
        mean, deviation = process.predict(self._unit.matrix(self._candidates(best)), return_std=True)
        # The noise of a single value is no improvement: subtract the white kernel's part of the deviation.
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
                kept = {path: value for path, value in point.items() if chance.random() < KEEP_PROBABILITY}
                drawing.enqueue_trial(self._space.encode(kept))
        count = RANDOM_POINTS + len(best) * POINTS_AROUND
        return [self._space.sample(drawing.ask(), self._lookup) for _ in range(count)]
