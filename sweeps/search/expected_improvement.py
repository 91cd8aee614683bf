"""Stop rule based on the largest expected improvement over the best trial, anywhere in the space.

Expected improvement (Jones et al., 1998, https://doi.org/10.1023/A:1008306431147) under a Gaussian process fitted to
the finished trials; Nguyen et al., 2017 (https://arxiv.org/abs/1708.06674) stop by it as well.

The evaluators of ``optuna.terminator`` (Optuna 5.0) do not replace it. They estimate other quantities, an upper bound
of the regret (``RegretBoundEvaluator``) and the expected minimum regret of the model (``EMMREvaluator``), which
cannot be compared with ``search.stop.expected_improvement``: on the tests' function of four parameters, after 80 trials
and 0.0014 above the optimum, they return 0.45 and 0.20 where the expected improvement is 0.006; on pure noise 0.50 and
2.7 where it is below 0.001. They also leave out every parameter with a condition, and reject a space in which all
parameters have one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeps.config.search import Mode
from sweeps.constants import NUMBER
from sweeps.search.curve_model.hyperparameters import Hyperparameters
from sweeps.search.curve_model.observations import Array, Observations, most_telling, observe_one_rung, with_worst
from sweeps.search.reported_values import violates_limit
from sweeps.search.samplers.candidates import Allows, CandidateSource
from sweeps.search.unit_cube import UnitCube
from sweeps.space.space import Lookup, Space

MIN_FINISHED = 10
"""Minimum number of finished trials within all limits to fit the process; it also needs one more than there are
dimensions."""
MOST_KNOWN = 200
"""Maximum number of trials for the process: the time grows with their cube."""
RANDOM_POINTS, NEAR_POINTS, NUM_BEST = 500, 500, 5
"""Number of random candidates for the maximum, of candidates near the best trials, and of best trials to which
candidates are near."""
NEAR_WIDTHS = (0.2, 0.05, 0.01)
"""Standard deviations of the changes to the best trials' points, as parts of a range."""


class ExpectedImprovement:
    """Largest expected improvement over the space, recomputed whenever another trial has finished.

    The process is the model of learning curves with one rung. Its hyperparameters are fitted again whenever the number
    of finished trials has grown by a fifth, to the first trials up to that number, so that they are the same after a
    restart.

    Example:
        >>> import optuna
        >>> from sweeps.search import ExpectedImprovement, FloatDistribution, Space
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1)})
        >>> improvement = ExpectedImprovement(space, lambda path: None, "min")
        >>> improvement.largest(optuna.create_study()) is None
        True
    """

    def __init__(self, space: Space, lookup: Lookup, mode: Mode, seed: int = 0, allows: Allows = lambda point: True):
        """
        Args:
            space: Space of the search.
            lookup: Returns the config's own value at a path, for conditions on paths that are not searched.
            mode: Whether a smaller or a larger value is better.
            seed: Seed of the points among which the maximum is searched.
            allows: Whether the search's constraints hold at a point.
        """
        self._seed, self._sign = seed, 1.0 if mode == "min" else -1.0
        self._cube = UnitCube(space)
        self._candidates = CandidateSource(space, self._cube, lookup, seed, allows)
        self._fitted: tuple[int, Hyperparameters] | None = None
        """Number of the first finished trials to which the process was fitted, and its hyperparameters."""
        self._computed: tuple[int, float | None] = (0, None)

    def largest(self, study: optuna.Study) -> float | None:
        """Return the largest expected improvement, in units of the metric; None while too few trials have finished."""
        # Imported here: it takes half a second, for a rule that few sweeps have.
        from sweeps.search.curve_model.threads import on_one_thread

        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        finished = [trial for trial in trials if NUMBER in trial.user_attrs]
        good = len(finished) - sum(map(violates_limit, finished))
        if good < max(MIN_FINISHED, len(self._cube.columns) + 1):
            return None
        if self._computed[0] != len(finished):
            finished.sort(key=lambda trial: (trial.datetime_complete, trial.number))
            self._computed = len(finished), on_one_thread(self._largest)(finished)
        return self._computed[1]

    def _largest(self, finished: Sequence[FrozenTrial]) -> float:
        from sweeps.search.curve_model.posterior import Posterior, expected_improvement

        told = self._most_telling(finished)
        losses = self._losses(told)
        posterior = Posterior(self._hyperparameters(finished), self._cube.groups, self._observed(told))
        best = [told[row].params for row in np.argsort(losses, kind="stable")[:NUM_BEST]]
        candidates = self._candidates.random(RANDOM_POINTS, self._seed).with_others(
            self._candidates.near(best, NEAR_WIDTHS, NEAR_POINTS, self._seed)
        )
        mean, scale = _mean_and_scale(losses)
        improvement = expected_improvement(*posterior.predict(candidates.vectors, 0), (losses.min() - mean) / scale)
        return scale * float(improvement.max())

    def _hyperparameters(self, finished: Sequence[FrozenTrial]) -> Hyperparameters:
        from sweeps.search.curve_model.fit import fit, fitted_number

        number = fitted_number(len(finished))
        if self._fitted is None or self._fitted[0] != number:
            told = self._most_telling(finished[:number])
            self._fitted = number, fit(self._observed(told), self._cube.groups, rungs=1)
        return self._fitted[1]

    def _most_telling(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        return [trials[row] for row in most_telling(self._losses(trials)[None, :, None], MOST_KNOWN)]

    def _observed(self, trials: Sequence[FrozenTrial]) -> Observations:
        """Return the trials' losses on a linear scale of variance 1, from which an improvement can be converted
        back."""
        losses = self._losses(trials)
        mean, scale = _mean_and_scale(losses)
        vectors = self._cube.matrix([self._cube.point(trial.params) for trial in trials])
        return observe_one_rung(vectors, (losses - mean) / scale)

    def _losses(self, trials: Sequence[FrozenTrial]) -> Array:
        """Return the trials' values as losses; those that violated a limit count as the worst."""
        losses = np.array([self._sign * trial.values[0] for trial in trials])
        return with_worst(losses[None, :, None], np.array([*map(violates_limit, trials)]))[0, :, 0]


def _mean_and_scale(losses: Array) -> tuple[float, float]:
    return float(losses.mean()), float(losses.std()) or 1.0
