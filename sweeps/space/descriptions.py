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
    step = "" if distribution.step in (None, 1) else f", step {_number(distribution.step)}"
    ends = [_number(end) for end in boundary_values(distribution)]
    return f"{ends[0]} to {ends[-1]}{step}{', log' if distribution.log else ''}{guess}"


def _number(value: Any) -> str:
    """Return a number with all digits if it is whole: 1048576 is not 1.04858e+06."""
    return str(value) if isinstance(value, int) else f"{value:g}"
