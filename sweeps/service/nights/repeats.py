"""Repeats of a night: a sweep with given points that trains champion and challenger again, to their end, on the same
data and with the same new seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from sweeps.compose.overrides import written_override
from sweeps.config.sweep_name import with_ending
from sweeps.constants import SEED
from sweeps.search.significance import Group
from sweeps.service.nights.night import Night
from sweeps.space.space import Point
from sweeps.tracking.record import SweepRecord, TrialRecord

DISABLED_STOP_RULES = ("target", "plateau", "expected_improvement")


def repeats_name(sweep: str) -> str:
    """Return the name of the sweep with a night's repeats. It depends only on the night, so that there is at most one
    such sweep."""
    return with_ending(sweep, "-repeats")


def repeats_overrides(night: Night, contenders: Sequence[Point], count: int) -> list[str]:
    """Return the overrides that turn the night's sweep into its repeats."""
    seeds = random.Random(f"{night.schedule} {night.due}").sample(range(1, 2**31), count)
    points = [_without_seed(point) | {SEED: seed} for seed in seeds for point in contenders]
    return [
        f"{SEED}=choice({','.join(map(str, seeds))})",
        "search/scheduler=none",
        f"search.num_trials={len(points)}",
        "search.default_first=false",
        "search.warm_start=[]",
        written_override("search.points", points),
        "search.confirm=0",
        "search.stages=[]",
        *(f"search.stop.{rule}=null" for rule in DISABLED_STOP_RULES),
        "tracking.report=false",
    ]


def of_contender(record: SweepRecord, contender: Point) -> list[TrialRecord]:
    """Return the finished trials of a contender."""
    wanted = _without_seed(contender)
    return [
        trial
        for trial in record.trials
        if trial.state == "finished" and trial.violation is None and _without_seed(trial.params) == wanted
    ]


def values_of(trials: Sequence[TrialRecord]) -> Group:
    return tuple(trial.value for trial in trials if trial.value is not None)


def _without_seed(point: Point) -> dict[str, Any]:
    return {path: value for path, value in point.items() if path != SEED}
