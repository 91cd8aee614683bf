"""Advisor that samples values near a user's prior early in the search, and less and less later."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, Prior
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.unit_cube import position, value_at
from sweeps.space.space import Space

if TYPE_CHECKING:
    import optuna

HALVED_AFTER = 10
"""Trials after which the confidence is halved; after twice as many, a third is left, and so on."""


class PriorAdvisor(Advisor):
    """Draws some of the first points from the user's prior (``prior: {value, confidence}``).

    In trial n a parameter is drawn from its prior with a probability of ``confidence * 10 / (10 + n)``, and by the
    sampler otherwise: in 100 trials about 24 times the confidence. The prior is a normal distribution around the value,
    truncated to the range, on the parameter's own scale (logarithmic if it is sampled so); its standard deviation is
    ``(1 - confidence) / 2`` of the range. A choice is the value itself with a probability of ``confidence``, and
    otherwise any of the choices. One random number decides for all parameters of a point, so that values that belong
    together are tried together.

    The prior fades with the number of trials, so that a wrong one does little harm, as in piBO (Hvarfner et al., 2022,
    https://arxiv.org/abs/2204.11051). Whole points are drawn from it, as in PriorBand (Mallik et al., 2023,
    https://arxiv.org/abs/2306.12370). piBO multiplies a sampler's acquisition function by the prior; this works with
    every sampler, since all of them learn from points that they did not suggest. PriorBand weights the prior by the
    values of its points; here the sampler learns from these values.

    Example:
        >>> import optuna
        >>> from sweeps.config.space import Prior
        >>> from sweeps.search import FloatDistribution, PriorAdvisor, Space
        >>> prior = Prior(value=0.5, confidence=0.9)
        >>> space = Space({"x": FloatDistribution(type="float", low=0, high=1, prior=prior)})
        >>> drawn = [PriorAdvisor(space, seed=0).fix(optuna.create_study(), number) for number in range(100)]
        >>> sum("x" in values for values in drawn)
        16
    """

    def __init__(self, space: Space, seed: int):
        """
        Args:
            space: Space whose distributions have priors.
            seed: Seed of the draws, together with a trial's number, so that a resumed sweep draws the same.
        """
        self._priors: dict[str, tuple[Distribution, Prior]] = {}
        for path, distribution in space.distributions.items():
            if not isinstance(distribution, ConstantDistribution) and distribution.prior is not None:
                self._priors[path] = distribution, distribution.prior
        self._seed = seed

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        """Return the values drawn from priors for the trial of this number."""
        random = np.random.default_rng((self._seed, number))
        threshold = random.random() * (1 + number / HALVED_AFTER)
        return {
            path: _draw(distribution, prior, random)
            for path, (distribution, prior) in self._priors.items()
            if threshold < prior.confidence
        }


def _draw(distribution: Distribution, prior: Prior, random: np.random.Generator) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        takes_value = random.random() < prior.confidence
        return prior.value if takes_value else distribution.choices[random.integers(len(distribution.choices))]
    assert not isinstance(distribution, ConstantDistribution)
    normal = NormalDist(position(distribution, prior.value), (1 - prior.confidence) / 2)
    drawn = normal.inv_cdf(random.uniform(normal.cdf(0), normal.cdf(1)))
    return value_at(distribution, min(max(drawn, 0.0), 1.0))
