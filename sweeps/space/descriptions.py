"""Descriptions of distributions and conditions, for tables of the search space."""

from __future__ import annotations

from typing import Any

from sweeps.config.space import CategoricalDistribution, ConstantDistribution, Distribution, OrdinalDistribution
from sweeps.space.distributions import allowed_values, boundary_values
from sweeps.texts.wording import value_text


def describe_condition(wanted: Any) -> str:
    """Describe a condition: ``sgd or nag``."""
    return " or ".join(map(value_text, allowed_values(wanted)))


def describe_conditions(distribution: Distribution) -> str:
    """Describe conditions: ``train.optimizer = sgd or nag and train.nesterov = true``; empty if the value is always
    searched."""
    return " and ".join(f"{other} = {describe_condition(wanted)}" for other, wanted in distribution.when.items())


def describe_distribution(distribution: Distribution) -> str:
    """Describe a distribution: ``0.0001 to 0.03, log`` or ``4, 8, 16``, with the prior if there is one."""
    if isinstance(distribution, ConstantDistribution):
        return f"always {value_text(distribution.value)}"
    prior = distribution.prior
    guess = "" if prior is None else f"; guess {value_text(prior.value)}, {prior.confidence:.0%} sure"
    match distribution:
        case CategoricalDistribution(choices=choices):
            return f"{', '.join(map(value_text, choices))}{guess}"
        case OrdinalDistribution(choices=choices):
            return f"{' < '.join(map(value_text, choices))}{guess}"
    step = "" if distribution.step in (None, 1) else f", step {distribution.step:g}"
    ends = boundary_values(distribution)
    return f"{ends[0]:g} to {ends[-1]:g}{step}{', log' if distribution.log else ''}{guess}"
