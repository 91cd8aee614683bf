"""Division of the cluster's workers among the trials of an elastic sweep.

A trial starts on free workers. Workers above the fair share are given back when another trial waits; when no trial
waits or will come, trials grow onto the free workers. This module only decides; the broker asks trials to change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

RESIZE_S = 10.0
"""Assumed seconds of a resize until the first one has been measured: processes start, and the training loads its
state."""


@dataclass
class Share:
    """Workers of one trial."""

    numbers: Sequence[int]
    """Numbers of workers that the trial may have, ascending."""
    workers: int
    """Workers that the trial has now or has been promised."""
    target: int | None = None
    """Number of workers that the trial was asked to change to; None if it was not asked."""
    remaining_s: Callable[[], float] = field(default=lambda: math.inf)
    """Returns the seconds that the trial will still take with its current workers, as far as known."""

    @property
    def booked(self) -> int:
        """Workers that are reserved for this trial."""
        return max(self.workers, self.target or 0)

    @property
    def soon(self) -> int:
        """Number of workers after a pending change, or now if none is pending."""
        return self.workers if self.target is None else self.target

    def next_larger(self) -> int | None:
        return next((number for number in self.numbers if number > self.soon), None)

    def saves_s(self, number: int) -> float:
        """Return the seconds that a larger number of workers would save, if speed grows in proportion."""
        return self.remaining_s() * (1 - self.workers / number)


class WorkerShares:
    """Decides the number of workers of each trial."""

    def __init__(self) -> None:
        self._places = 0
        self._expected = self._to_come = 0
        self._resize_s = RESIZE_S
        self._shares: dict[str, Share] = {}
        self._waiting: dict[str, Sequence[int]] = {}

    @property
    def free(self) -> int:
        """Workers that do not belong to a trial."""
        return self._places - sum(share.booked for share in self._shares.values())

    @property
    def fair(self) -> int:
        """Workers per trial if they are divided equally among as many trials as may run at a time."""
        return self._places // max(1, self._expected, len(self._shares.keys() | self._waiting.keys()))

    @property
    def trials(self) -> list[str]:
        return list(self._shares)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def has_more_than_expected(self) -> bool:
        """Whether more trials have workers than will run at a time, because a trial has ended and none follows."""
        return len(self._shares) > self._expected

    def workers_of(self, trial: str) -> int:
        """Return the number of workers that a trial has now."""
        return self._shares[trial].workers

    def set_room(self, places: int, expected: int, to_come: int = 0) -> None:
        """Set the resources that the trials share.

        Args:
            places: Workers that the cluster has room for.
            expected: Number of trials that will run at a time from now on, including those that have not begun.
            to_come: Number of trials that will begin when others have ended.
        """
        self._places, self._expected, self._to_come = places, expected, to_come

    def observe_resize(self, seconds: float) -> None:
        """Update the expected duration of a resize with a measured one."""
        self._resize_s = seconds

    def claim(self, trial: str, numbers: Sequence[int], remaining_s: Callable[[], float]) -> int | None:
        """Give a trial its workers.

        Args:
            trial: Id of the trial. If it was asked to change its number of workers, it gets the new number.
            numbers: Numbers of workers that it may have, ascending.
            remaining_s: See ``Share``.

        Returns:
            Number of its workers; None if too few are free until other trials give some back.
        """
        before = self._shares.pop(trial, None)
        self._waiting[trial] = numbers
        wanted = self.fair if before is None else max(before.soon, self.fair)
        number = max((each for each in numbers if each <= min(self.free, wanted)), default=None)
        if number is None and numbers[0] <= self.free:
            number = numbers[0]
        if number is None:
            return None
        del self._waiting[trial]
        self._shares[trial] = Share(numbers, number, remaining_s=remaining_s)
        return number

    def moved(self, trial: str) -> None:
        """Free a trial's previous workers after it has stopped to change their number."""
        share = self._shares.get(trial)
        if share is not None and share.target is not None:
            share.workers, share.target = share.target, None

    def stay(self, trial: str) -> None:
        """Keep a trial's number of workers from now on, because it is about to end."""
        if trial in self._shares:
            self._shares[trial].target = None

    def release(self, trial: str) -> None:
        """Free a trial's workers for other trials."""
        self._shares.pop(trial, None)
        self._waiting.pop(trial, None)

    def decide(self, may_change: Callable[[str], bool]) -> Mapping[str, int]:
        """Decide which trials change their number of workers now.

        Returns:
            The new number of workers of each of these trials.
        """
        before = {trial: share.soon for trial, share in self._shares.items()}
        changing = {trial: share for trial, share in self._shares.items() if share.target is None and may_change(trial)}
        missing = -sum(share.soon for share in self._shares.values()) + self._places
        missing = sum(max(self._fair_number(each), each[0]) for each in self._waiting.values()) - missing
        if missing > 0:
            self._shrink(changing, missing)
        elif not self._waiting:
            self._grow(changing)
        return {trial: share.soon for trial, share in self._shares.items() if share.soon != before[trial]}

    def next_growth(self, may_change: Callable[[str], bool]) -> tuple[str, int] | None:
        """Find the trial that will grow when another one ends, and its new number of workers; None while trials will
        start or change, or if growing does not pay."""
        shares = self._shares
        if self._to_come or self._waiting or len(shares) < max(2, self._expected):
            return None
        if any(share.target is not None for share in shares.values()):
            return None
        steps = [
            (name, share, larger)
            for name, share in shares.items()
            if may_change(name) and (larger := share.next_larger()) is not None
        ]
        if not steps:
            return None
        name, share, larger = min(steps, key=lambda each: (each[1].soon, -each[1].remaining_s()))
        return (name, larger) if share.saves_s(larger) > self._resize_s else None

    def _fair_number(self, numbers: Sequence[int]) -> int:
        return max((each for each in numbers if each <= self.fair), default=numbers[0])

    def _shrink(self, changing: Mapping[str, Share], missing: int) -> None:
        """Take workers from the trials that have the most, down to the fair share."""
        for share in sorted(changing.values(), key=lambda each: -each.workers):
            number = min(self._fair_number(share.numbers), share.workers)
            if missing <= 0 or number == share.workers:
                continue
            share.target = number
            missing -= share.workers - number

    def _grow(self, changing: Mapping[str, Share]) -> None:
        """Give free workers to the trials that have the fewest, and among these to the one with the most time left.
        Workers for trials that have not begun are reserved."""
        free = self.free - max(0, self._expected - len(self._shares)) * self.fair
        while True:
            steps = [(share, larger) for share in changing.values() if (larger := share.next_larger()) is not None]
            possible = [
                (share, larger)
                for share, larger in steps
                if larger - share.booked <= free and self._is_worth_it(share, free)
            ]
            if not possible:
                return
            share, larger = min(possible, key=lambda each: (each[0].soon, -each[0].remaining_s()))
            free -= larger - share.booked
            share.target = larger

    def _is_worth_it(self, share: Share, free: int) -> bool:
        """Whether a trial ends earlier with all workers that it can take, despite the restart."""
        most = max(number for number in share.numbers if number <= share.booked + free)
        return most > share.workers and share.saves_s(most) > self._resize_s
