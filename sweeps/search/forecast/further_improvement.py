"""Improvement of the best value that the rest of a search will probably bring.

The best of the trials so far are taken for the tail of a distribution from which the further trials are drawn:
peaks over a threshold (Davison and Smith, 1990, https://doi.org/10.1111/j.2517-6161.1990.tb01796.x), whose excesses
have a generalized Pareto distribution. For random points around a smooth optimum its shape is -2 divided by the number
of parameters that matter (de Haan, 1981, https://doi.org/10.1080/01621459.1981.10477671): this is the prior, and the
posterior over shape and scale carries the doubt of few trials into the forecast. Trials that run become better by what
ended ones became better from the same progress on, drawn anew in each of several imputations (Rubin, 1987).

Expected improvement (see ``expected_improvement``, the stop rule) is about the best single next point, and needs a
model of the space; this is about all the trials that are left, and needs their number alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sweeps.search.forecast.remaining_work import Course, Floats

FEWEST = 5
"""Fewest ended trials with a value."""
IMPUTATIONS = 40
MOST_RUNNING = 50
"""Most trials that run of which it is drawn how they go on."""
RECENT = 0.5
"""Share of the trials, the newest ones, that further trials are taken to be like."""
FEWEST_RECENT = 10
TAIL = 0.5
"""Share of the trials that is the tail."""
FEWEST_TAIL, MOST_TAIL = 4, 20
SHAPES = np.linspace(-1.2, 0.2, 57)
PRIOR_MEAN, PRIOR_DEVIATION = -0.4, 0.3
"""Prior of the shape: -2/d is -1 with two parameters, -0.4 with five, and -0.2 with ten."""
SCALES = np.geomspace(0.1, 20, 60)
"""Scales, as multiples of the mean excess."""


def further_improvement(
    trials: Sequence[Course], to_start: npt.NDArray[np.int64], random: np.random.Generator
) -> Floats | None:
    """Draw how much better the best value will become.

    Args:
        trials: Trials so far, in the order of their starts.
        to_start: Number of trials that will still be started, one for each draw.
        random: Random numbers.

    Returns:
        A draw for each number, 0 where the best stays the best; None with too few trials.
    """
    if sum(each.state == "ended" and each.loss is not None for each in trials) < FEWEST:
        return None
    losses = [each.loss for each in trials if each.loss is not None]
    best, bound = min(losses), _bound(losses)
    unfinished = _unfinished(trials, random)
    slopes = [slope for each in trials if (slope := each.slope()) is not None]
    gains = np.zeros(len(to_start))
    for draws in np.array_split(random.permutation(len(to_start)), min(IMPUTATIONS, len(to_start))):
        finals = np.maximum(_final_values(trials, unfinished, slopes, random), bound)
        lowest = min(best, float(finals.min()))
        further = np.maximum(_lowest_of_new(finals, to_start[draws], random), bound)
        gains[draws] = best - np.minimum(lowest, further)
    return gains


def _bound(losses: Sequence[float]) -> float:
    """Value below which no trial is expected, judging by the values so far: losses and errors are not negative, and
    accuracies (here negative losses) are at most 1."""
    if min(losses) >= 0:
        return 0.0
    return -1.0 if min(losses) >= -1 and max(losses) <= 0 else -math.inf


@dataclass(frozen=True)
class _Unfinished:
    """A trial that runs, and how others went on from its progress."""

    index: int
    """Its place among the trials."""
    drops: Sequence[float]
    """Improvement of each of those; empty if none has got further."""
    rest: float
    """Logarithm of the factor by which its progress can still grow."""


def _unfinished(trials: Sequence[Course], random: np.random.Generator) -> list[_Unfinished]:
    """The best of the trials that run: others will not become the best of all."""
    running = [index for index, each in enumerate(trials) if each.state != "ended" and each.loss is not None]
    furthest = max(1.0, *(each.progress for each in trials))
    found = []
    for index in sorted(running, key=lambda index: trials[index].loss or 0.0)[:MOST_RUNNING]:
        progress = trials[index].progress
        like = [each for each in trials if each.loss is not None and each.progress > progress]
        chosen = (
            like if len(like) <= IMPUTATIONS else [like[each] for each in random.integers(len(like), size=IMPUTATIONS)]
        )
        rest = math.log(furthest / progress) if progress > 0 else 0.0
        found.append(_Unfinished(index, [each.drop_after(progress) for each in chosen], rest))
    return found


def _final_values(
    trials: Sequence[Course], unfinished: Sequence[_Unfinished], slopes: Sequence[float], random: np.random.Generator
) -> Floats:
    """Best value that each trial ends with: drawn for those that run, infinity where there is none."""
    finals = np.array([math.inf if each.loss is None else each.loss for each in trials])
    for each in unfinished:
        if each.drops:
            finals[each.index] -= each.drops[int(random.integers(len(each.drops)))]
        elif slopes:  # none has got further: as all did on their way, up to some point
            finals[each.index] -= slopes[int(random.integers(len(slopes)))] * each.rest * random.random()
    return finals


def _lowest_of_new(finals: Floats, counts: npt.NDArray[np.int64], random: np.random.Generator) -> Floats:
    """Draw the lowest value among numbers of further trials; infinity where none gets into the tail."""
    finite = np.sort(finals[np.isfinite(finals)])
    recent = finals[-max(FEWEST_RECENT, math.ceil(RECENT * len(finals))) :]
    size = min(max(FEWEST_TAIL, math.ceil(TAIL * len(finals))), MOST_TAIL, len(finite) - 1)
    threshold = float(finite[size])
    excess = threshold - finite[:size]
    if not excess.max() > 0:  # all are equal: nothing tells how much better another may be
        return np.full(len(counts), np.inf)
    shape, scale = _posterior(excess, len(counts), random)
    within = int((recent < threshold).sum())
    share = random.beta(within + 0.5, len(recent) - within + 0.5, len(counts))
    inside = random.binomial(counts, share)
    # The distribution function of the largest of several draws is a power of that of one, which is uniform.
    below = -np.log(np.maximum(random.random(len(counts)), 1e-300)) / np.maximum(inside, 1)
    above = -np.expm1(-below)
    flat = np.abs(shape) < 1e-9
    safe = np.where(flat, 1.0, shape)
    largest = np.where(flat, -scale * np.log(above), scale / safe * (above**-safe - 1))
    return np.where(inside > 0, threshold - largest, np.inf)


def _posterior(excess: Floats, draws: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw shapes and scales of the generalized Pareto distribution."""
    unit = float(excess.mean())
    relative = excess / unit
    shape, scale = np.meshgrid(SHAPES, SCALES, indexing="ij")
    inner = 1 + shape[..., None] * relative / scale[..., None]
    flat = np.abs(shape) < 1e-9
    safe = np.where(flat, 1.0, shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = np.where(flat, relative.sum() / scale, (1 + 1 / safe) * np.log(np.maximum(inner, 1e-300)).sum(axis=-1))
    likelihood = np.where((inner > 0).all(axis=-1), -len(excess) * np.log(scale) - tail, -np.inf)
    density = likelihood - 0.5 * ((shape - PRIOR_MEAN) / PRIOR_DEVIATION) ** 2
    mass = np.exp(density - density.max()).ravel()
    chosen = np.searchsorted(mass.cumsum(), random.random(draws) * mass.sum(), side="right").clip(max=mass.size - 1)
    return shape.ravel()[chosen], scale.ravel()[chosen] * unit
