"""Rules for a night's verdict from its values, without database and MLflow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, stdev

from sweeps.config.nights import Champion
from sweeps.search.significance import duel, gain, pooled_deviation, rounding
from sweeps.service.nights.night import Night, Verdict

Found = tuple[Verdict, str]
"""Verdict and reason."""
MIN_NIGHTS_FOR_SPREAD = 3
"""Minimum number of earlier nights for an estimate of the spread between nights."""


def noise_of(night: Night, before: Sequence[Night]) -> float | None:
    """Return the standard deviation between trainings of the same point: the configured one, or the one measured in the
    repeats of this night and earlier ones."""
    if night.settings.noise is not None:
        return night.settings.noise
    return pooled_deviation(group for each in [*before, night] for group in (each.champions, each.challengers))


def after_sweep(night: Night, before: Sequence[Night], *, champion_is_best: bool) -> Found | None:
    """Return the verdict from the night's best value, the noise and the earlier nights (oldest first); None if the
    challenger must be compared with the champion first."""
    if night.best is None:
        return "failed", "No trial has a value."
    if (regression := _regression(night, night.best, before)) is not None:
        return "regression", regression
    if night.settings.champion is None:
        return "measured", f"Its best {night.metric} is {night.best:.5g}."
    if night.tried is not None and night.point is None:
        return "kept", f"The champion stays: {night.reason or 'its parameters are unknown.'}"
    if champion_is_best:
        return "kept", f"The champion stays: nothing was better than its {night.best:.5g} on tonight's data."
    return None


def _regression(night: Night, best: float, before: Sequence[Night]) -> str | None:
    """Return the reason why a night is worse than earlier ones. Nights differ by their seeds (the noise) and by their
    data (the spread between nights); the larger of both determines the allowed difference.

    Returns:
        The reason; None if the night is not worse, or if there is too little data: no earlier night, or neither a noise
            that was measured nor a spread.
    """
    rule = night.settings.regression
    if rule is None:
        return None
    bests = [each.best for each in before if each.best is not None][-rule.nights :]
    spread = stdev(bests) if len(bests) >= MIN_NIGHTS_FOR_SPREAD else None
    # Noise 0 is left out: equal trainings gave equal values, but nights also differ by their data.
    known = [each for each in (night.noise or None, spread) if each is not None]
    if not bests or not known:
        return None
    usual = median(bests)
    loss = -gain(night.mode, best, usual)
    allowed = max(rule.standard_deviations * max(known), rule.min_change, rounding(best, usual))
    if loss <= allowed:
        return None
    return (
        f"Its best {night.metric}, {best:.5g}, is worse than the usual {usual:.5g} by {loss:.2g}, and nights differ by "
        f"up to {allowed:.2g}. Nothing is promoted."
    )


def after_repeats(night: Night, settings: Champion) -> Found:
    """Return the verdict on the challenger after the repeats, from the values of both contenders and the noise."""
    if not night.challengers:
        return "kept", "The champion stays: no repeat of the challenger finished."
    value = f"{fmean(night.challengers):.5g}"
    if night.tried is None:
        return "first", f"The first champion, {night.metric} {value} on tonight's data."
    if not night.champions:
        return "kept", "The champion stays: none of its repeats finished, so that nothing can be compared."
    if night.noise is None:
        return "kept", "The champion stays: too few repeats finished to measure the noise."
    deviations, min_change = settings.standard_deviations, settings.min_change
    result = duel(night.mode, night.champions, night.challengers, night.noise, deviations, min_change)
    words = f"{value} against the champion's {fmean(night.champions):.5g} on tonight's data"
    needed = f"noise, {result.needed:.2g}"
    if result.needed == min_change:
        needed = f"nights.champion.min_change={min_change:g}"
    elif night.noise == 0:
        needed = (
            "rounding; equal trainings gave equal values, so that no larger difference is needed unless "
            "nights.champion.min_change is set"
        )
    if result.won:
        return "promoted", f"A new champion: {words}, better by {result.gain:.2g}, which is more than {needed}."
    return "kept", f"The champion stays: {words} is not better by more than {needed}."
