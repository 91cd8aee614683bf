"""Race between the best configurations of a search, trained again with other seeds: decides who gets another run and
who has won."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sweeps.config.search import Mode
from sweeps.search.significance import Group, duel, pooled_deviation

MIN_RUNS, MAX_RUNS = 2, 5
"""Minimum and default maximum number of runs of a contender; the first comparison needs two."""


@dataclass(frozen=True)
class Estimate:
    """Mean of a configuration's runs with other seeds."""

    mean: float
    low: float
    """Lower end of the mean's confidence interval."""
    high: float
    """Upper end of the mean's confidence interval."""
    runs: int


@dataclass(frozen=True, kw_only=True)
class Race:
    """State of a race, derived only from the values of its runs."""

    next: tuple[str, ...]
    """Contenders that get one more run; empty when the race is over."""
    in_race: tuple[str, ...]
    """Contenders that no other one beats significantly; the best mean first, once all have two runs."""
    out: Mapping[str, str]
    """Eliminated contenders, each with the one that was significantly better."""
    estimates: Mapping[str, Estimate]
    """Means with confidence intervals, by contender; empty before the first comparison."""

    @property
    def winner(self) -> str | None:
        """The only contender left, after every other was significantly worse than the best of its round; None if the
        race continues, or ended with several."""
        return self.in_race[0] if not self.next and len(self.in_race) == 1 else None


def race(
    mode: Mode,
    values: Mapping[str, Sequence[float]],
    *,
    failed: Collection[str] = (),
    max_runs: int = MAX_RUNS,
    confidence: float = 0.95,
) -> Race:
    """Judge a race by the runs that have ended.

    Each round gives one run to each contender in the race. After each round from the second on, a contender that is
    significantly worse than the one with the best mean leaves the race. The race ends when one is left, or after
    ``max_runs`` rounds.

    The probability that the truly best contender leaves the race, and with it that of naming a wrong winner, is at most
    ``1 - confidence``, if values of a contender are normally distributed and vary equally for all: this probability is
    divided by the number of comparisons that a contender can lose (Bonferroni). Differences are compared with the
    pooled deviation by Student's t. The confidence intervals hold together, for all contenders and after every round,
    so also for the winner and whenever the race ends. The value of a contender in its search must not be among its
    values: it was chosen because that is good. The order in which contenders' runs end does not matter, only that of
    one contender's runs.

    Args:
        mode: Whether a smaller or a larger value is better.
        values: Values of each contender's runs with other seeds, in the order of the runs; finite numbers.
        failed: Contenders that cannot win, since one of their runs failed; they are in none of the results.
        max_runs: Maximum number of runs of a contender, at least 2.
        confidence: Probability that the best contender is not excluded, and of the confidence intervals; between 0
            and 1.

    Returns:
        The race: which runs are next, or how it ended.

    Raises:
        ValueError: There are fewer than two contenders, ``max_runs`` is less than 2, ``confidence`` is not between
            0 and 1, or a value is not finite.

    Example:
        >>> from sweeps.search import race
        >>> state = race("min", {"7": [0.21, 0.22], "12": [0.21, 0.2], "3": [0.41, 0.4]})
        >>> state.next, dict(state.out)
        (('12', '7'), {'3': '12'})
    """
    for name, group in values.items():
        if not all(map(math.isfinite, group)):
            raise ValueError(f"a race needs finite values; those of {name} are {[*group]}")
    if len(values) < 2 or max_runs < 2 or not 0 < confidence < 1:
        raise ValueError(
            f"a race needs two contenders (it has {len(values)}), max_runs of 2 or more (it is {max_runs}) and a "
            f"confidence between 0 and 1 (it is {confidence})"
        )
    of_one = (1 - confidence) / ((len(values) - 1) * (max_runs - 1))
    counted: dict[str, Group] = {}
    left, out = [name for name in values if name not in failed], dict[str, str]()
    for rounds in range(1, max_runs + 1):
        waiting = tuple(name for name in left if len(values[name]) < rounds)
        if waiting:
            return Race(next=waiting, in_race=tuple(left), out=out, estimates=_estimates(counted, confidence, max_runs))
        counted |= {name: values[name][:rounds] for name in left}
        if rounds == 1 or not left:
            continue
        noise, needed = _noise(counted), _t_quantile(counted, 1 - of_one)
        left.sort(key=lambda name: fmean(counted[name]), reverse=mode == "max")
        best = left[0]
        worse = [name for name in left if duel(mode, counted[name], counted[best], noise, needed).won]
        out |= dict.fromkeys(worse, best)
        left = [name for name in left if name not in out]
        if len(left) == 1:
            break
    return Race(next=(), in_race=tuple(left), out=out, estimates=_estimates(counted, confidence, max_runs))


def _noise(groups: Mapping[str, Group]) -> float:
    """Return the pooled standard deviation of the values; each group has two values or more."""
    noise = pooled_deviation(groups.values())
    assert noise is not None
    return noise


def _t_quantile(groups: Mapping[str, Group], probability: float) -> float:
    """Return a quantile of Student's t with the degrees of freedom of the groups' pooled deviation."""
    from scipy.special import stdtrit  # takes a tenth of a second, and the service's pages do not need it

    return float(stdtrit(sum(len(group) - 1 for group in groups.values()), probability))


def _estimates(groups: Mapping[str, Group], confidence: float, max_runs: int) -> dict[str, Estimate]:
    """Return means with simultaneous confidence intervals, for all contenders and after every round. Ordinary intervals
    would be too narrow: the winner is chosen by its mean, and the race ends earlier when the noise looks small."""
    if not groups or min(map(len, groups.values())) < 2:
        return {}
    tail = (1 - confidence) / (2 * len(groups) * (max_runs - 1))
    half = _noise(groups) * _t_quantile(groups, 1 - tail)
    found: dict[str, Estimate] = {}
    for name, group in groups.items():
        mean, reach = fmean(group), half / math.sqrt(len(group))
        found[name] = Estimate(mean, mean - reach, mean + reach, len(group))
    return found
