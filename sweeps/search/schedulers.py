"""Tune schedulers by config."""

from __future__ import annotations

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from sweeps.config.search import AshaScheduler, NoScheduler, Scheduler
from sweeps.constants import EVALUATIONS
from sweeps.errors import ConfigError

NEVER = 10**9


def build_scheduler(scheduler: Scheduler) -> TrialScheduler:
    """A scheduler that is given metric and mode by Tune."""
    match scheduler:
        case AshaScheduler(grace=grace, eta=eta, brackets=brackets):
            # max_t bounds nothing here: a trial ends by itself, and one that did must not be told apart from one
            # that reached the last rung.
            return AsyncHyperBandScheduler(
                time_attr=EVALUATIONS,
                max_t=NEVER,
                grace_period=grace,  # type: ignore[arg-type]  # any positive number does
                reduction_factor=eta,
                brackets=brackets,
            )
        case NoScheduler():
            return FIFOScheduler()  # type: ignore[no-untyped-call]
        case _:
            raise ConfigError(f"search.scheduler.kind={scheduler.kind}: not there yet")
