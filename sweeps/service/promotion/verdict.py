"""What a night has brought, by its values: the rules, without the database and MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from sweeps.config.nights import Champion
from sweeps.service.promotion.night import Night, Verdict
from sweeps.service.promotion.significance import beside_nights_before, duel, pooled

Found = tuple[Verdict, str]
"""A verdict, and why."""


def noise_of(night: Night, before: Sequence[Night]) -> float | None:
    """Standard deviation between equal trainings: as given, or as the repeats of tonight and of the nights before have
    measured it."""
    if night.settings.noise is not None:
        return night.settings.noise
    return pooled(group for each in [*before, night] for group in (each.champions, each.challengers))


def after_its_sweep(night: Night, before: Sequence[Night], *, champion_is_best: bool) -> Found | None:
    """The verdict where the night's own trials tell it; None where its challenger must be compared with the champion.

    Args:
        night: With its best value and its noise.
        before: The nights before, the oldest first.
        champion_is_best: Whether its best trial is the champion's.
    """
    if night.best is None:
        return "failed", "No trial has a value."
    if (regression := _regression(night, night.best, before)) is not None:
        return "regression", regression
    if night.settings.champion is None:
        return "measured", f"Its best {night.metric} is {night.best:.5g}."
    if night.tried is not None and night.point is None:
        return "kept", f"The champion stays: {night.reason or 'its values are not known.'}"
    if champion_is_best:
        return "kept", f"The champion stays: nothing was better than its {night.best:.5g} on tonight's data."
    return None


def _regression(night: Night, best: float, before: Sequence[Night]) -> str | None:
    rule = night.settings.regression
    if rule is None:
        return None
    bests = [each.best for each in before if each.best is not None]
    beside = beside_nights_before(night.mode, best, bests, night.noise, rule)
    if beside is None or not beside.worse:
        return None
    return (
        f"Its best {night.metric}, {best:.5g}, is worse than the usual {beside.usual:.5g} by {beside.loss:.2g}, and "
        f"nights differ by up to {beside.allowed:.2g}. Nothing is promoted."
    )


def after_the_contest(night: Night, settings: Champion) -> Found:
    """Whether the challenger becomes champion.

    Args:
        night: With the values of both, and the noise.
        settings: How much better it must be.
    """
    if not night.challengers:
        return "kept", "The champion stays: the challenger came to its end in no repeat."
    value = f"{fmean(night.challengers):.5g}"
    if night.tried is None:
        return "first", f"The first champion, {night.metric} {value} on tonight's data."
    if not night.champions:
        return "kept", "The champion stays: it came to its end in no repeat, so that nothing can be compared."
    if night.noise is None:
        return "kept", "The champion stays: too few repeats came to their end to measure the noise."
    result = duel(night.mode, night.champions, night.challengers, night.noise, settings.standard_deviations)
    words = f"{value} against the champion's {fmean(night.champions):.5g} on tonight's data"
    if result.won:
        return "promoted", f"A new champion: {words}, better by {result.gain:.2g} where noise is {result.needed:.2g}."
    return "kept", f"The champion stays: {words} is not better by more than noise, {result.needed:.2g}."
