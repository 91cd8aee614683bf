"""What a person believes to be good, tried early and then less and less."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, Prior
from sweeps.search.encoding import position, value_at
from sweeps.space.distributions import Space

if TYPE_CHECKING:
    import optuna

HALVED_AFTER = 10
"""Trials after which half of the confidence is left, a third after twice as many, and so on."""


class PriorAdvisor:
    """Draws some of the first points near to what a person believes to be good (``prior: {value, confidence}``).

    With trial n, a parameter is drawn from its prior with the probability ``confidence * 10 / (10 + n)``, and from the
    sampler otherwise: of 100 trials about 24 times the confidence. The prior is a normal distribution around the guess,
    cut at the ends of the range, in the parameter's own scale (its logarithm, if it is sampled so); its standard
    deviation is ``(1 - confidence) / 2`` of the range. A choice is the guess itself with a probability of
    ``confidence``, or else any of the choices. One throw of the dice decides for all parameters of a point, so that
    guesses that belong together are tried together.

    That a prior fades with the trials done, so that a wrong one cannot spoil the search, is from piBO (Hvarfner et
    al., 2022, https://arxiv.org/abs/2204.11051), and drawing whole points from it, among others, from PriorBand
    (Mallik et al., 2023, https://arxiv.org/abs/2306.12370). piBO multiplies the acquisition function by it, which needs
    a sampler that has one to multiply; this works with every sampler, since all of them learn from points that they
    did not suggest. PriorBand weighs the prior by how good its points turn out to be; here the sampler finds that out.
    """

    def __init__(self, space: Space, seed: int):
        """
        Args:
            space: Its distributions hold the priors.
            seed: With the number of a trial it determines what is drawn, so that a resumed sweep goes on as it would.
        """
        self._priors: dict[str, tuple[Distribution, Prior]] = {}
        for path, distribution in space.distributions.items():
            if not isinstance(distribution, ConstantDistribution) and distribution.prior is not None:
                self._priors[path] = distribution, distribution.prior
        self._seed = seed

    def fix(self, study: optuna.Study, number: int) -> Mapping[str, Any]:
        """What is drawn from priors in the trial of this number."""
        random = np.random.default_rng((self._seed, number))
        dice = random.random() * (1 + number / HALVED_AFTER)
        return {
            path: _draw(distribution, prior, random)
            for path, (distribution, prior) in self._priors.items()
            if dice < prior.confidence
        }

    def refuse(self, study: optuna.Study, point: Mapping[str, Any]) -> str | None:
        """A belief is no reason to keep from anything."""
        return None


def _draw(distribution: Distribution, prior: Prior, random: np.random.Generator) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        sure = random.random() < prior.confidence
        return prior.value if sure else distribution.choices[random.integers(len(distribution.choices))]
    assert not isinstance(distribution, ConstantDistribution)
    normal = NormalDist(position(distribution, prior.value), (1 - prior.confidence) / 2)
    place = normal.inv_cdf(random.uniform(normal.cdf(0), normal.cdf(1)))
    return value_at(distribution, min(max(place, 0.0), 1.0))
