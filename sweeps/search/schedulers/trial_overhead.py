"""Time that trials take in addition to training, measured in the newest ones."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from sweeps.constants import CHECKPOINT_TIME, RESTARTED, TIME_OF_REPORT
from sweeps.search.schedulers.rung_positions import amount_in

STARTS, OTHER_STARTS, INTERVALS = 3, 8, 4
"""Numbers of measurements that make an overhead reliable: of starts of trials whose pace is known, or of all starts,
and of intervals."""
NEWEST = 64
"""Number of measurements of each kind that count."""


class Position(NamedTuple):
    """A trial at its last report."""

    resource: float
    saved_s: float
    """Seconds that its checkpoints have taken since it began or continued."""


class Overhead(NamedTuple):
    """Overhead of a trial, as fractions of the time of a complete training."""

    start: float
    """Time to start a trial, or to continue it after a pause."""
    saving: float
    """Time to save a checkpoint at each evaluation."""


class TrialOverhead:
    """Measures the time that starts and checkpoints take between the reports of trials."""

    def __init__(self, resource: str):
        """
        Args:
            resource: Key of the result that tells how far a trial has trained.
        """
        self._resource = resource
        self._begins: set[str] = set()
        """Trials that have not reported since they began or continued."""
        self._last: dict[str, Position] = {}
        self._starts: deque[tuple[str, float, float]] = deque(maxlen=NEWEST)
        """A trial, seconds from its start or continuation to its next report, without those to save, and its training
        until then."""
        self._intervals: deque[tuple[str, float, float, float]] = deque(maxlen=NEWEST)
        """A trial, seconds of training between two of its reports, its amount, and seconds to save."""

    def begin(self, trial: str, *, counts: bool) -> None:
        """Record that a trial begins or continues.

        Args:
            trial: Id of the trial.
            counts: Whether to measure the start; false while the first workers are started.
        """
        if trial in self._last:
            self._last[trial] = self._last[trial]._replace(saved_s=0.0)
        if counts:
            self._begins.add(trial)

    def report(self, trial: str, result: Mapping[str, Any]) -> None:
        """Add a report; in a simulation it may have no time."""
        seconds, resource = result.get(TIME_OF_REPORT), amount_in(result, self._resource)
        if seconds is None or resource is None:
            return
        now = Position(float(resource), float(result.get(CHECKPOINT_TIME, 0.0)))
        before = self._last.get(trial)
        self._last[trial] = now
        trained = now.resource - (before.resource if before is not None else 0.0)
        if trial in self._begins:
            self._begins.remove(trial)
            self._starts.append((trial, seconds - now.saved_s, trained))
        elif before is not None and trained > 0 and not result.get(RESTARTED):  # else its attempt has failed or moved
            saving = max(now.saved_s - before.saved_s, 0.0)
            self._intervals.append((trial, max(seconds - saving, 1e-6), trained, saving))

    @property
    def num_starts(self) -> int:
        """Number of starts from which the overhead is computed: of trials with a known pace, or of all if no pace is
        known."""
        return self._num_with_pace or len(self._starts)

    @property
    def is_reliable(self) -> bool:
        """Whether there are enough measurements for a choice that holds for the whole search."""
        has_starts = self._num_with_pace >= STARTS or len(self._starts) >= OTHER_STARTS
        return has_starts and len(self._intervals) >= INTERVALS

    @property
    def _num_with_pace(self) -> int:
        """Number of measured starts of trials whose pace is known."""
        known = {trial for trial, *_ in self._intervals}
        return sum(trial in known for trial, *_ in self._starts)

    def of_training(self, longest: float | None) -> Overhead | None:
        """Return the overhead of a trial relative to a whole training of this length; None before the first
        measurements, or if the length is unknown."""
        if longest is None or not self._starts or not self._intervals:
            return None
        paces = defaultdict(list)
        for trial, seconds, trained, _ in self._intervals:
            paces[trial].append(seconds / trained)
        # Trials of a space may differ several times in their pace: by another one's, a slow trial seems to start late.
        own = [each for each in self._starts if each[0] in paces]
        of_others = statistics.median(itertools.chain.from_iterable(paces.values()))
        starts = [
            (seconds / statistics.median(paces.get(trial, [of_others])) - trained) / longest
            for trial, seconds, trained in own or self._starts
        ]
        saving = statistics.median(saving for *_, saving in self._intervals)
        return Overhead(
            max(statistics.median(starts), 0.0),
            saving / statistics.median(seconds for _, seconds, *_ in self._intervals),
        )
