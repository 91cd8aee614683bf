"""Builds a user's own sampler from its import path and arguments."""

from __future__ import annotations

import importlib
import inspect

from optuna.samplers import BaseSampler

from sweeps.config.samplers import CustomSampler
from sweeps.errors import ConfigError


def make_custom_sampler(sampler: CustomSampler, seed: int) -> BaseSampler:
    """Build a custom sampler.

    Args:
        sampler: Config of the sampler.
        seed: Seed of the search; the sampler gets it, if it accepts one.

    Raises:
        ConfigError: The target cannot be imported or called, or does not return a sampler.
    """
    key = f"search.sampler._target_={sampler.target}"
    module, _, name = sampler.target.rpartition(".")
    try:
        target = getattr(importlib.import_module(module), name)
    except Exception as error:  # users' code may raise anything when it is imported
        raise ConfigError(f"{key}: cannot be imported ({_told(error)}); give the import path of a sampler") from error
    try:
        signature = inspect.signature(target)
        seeded = {"seed": seed} if "seed" in signature.parameters else {}
        made = target(**{**seeded, **sampler.arguments})
    except Exception as error:  # and when it is called
        raise ConfigError(
            f"{key}: cannot be called with search.sampler.arguments={sampler.arguments}: {_told(error)}; correct the "
            "arguments"
        ) from error
    if not isinstance(made, BaseSampler):
        raise ConfigError(f"{key}: makes a {type(made).__name__}; it must make an optuna.samplers.BaseSampler")
    return made


def _told(error: Exception) -> str:
    """Describe an error in one line, with its type if the text alone is not informative."""
    text = " ".join(str(error).split())
    return text if text and isinstance(error, ImportError | AttributeError | TypeError | ValueError) else repr(error)
