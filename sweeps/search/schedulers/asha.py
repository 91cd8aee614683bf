"""Asynchronous successive halving (ASHA)."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweeps.config.objectives import Objectives
from sweeps.search.schedulers.decisions import BROKEN, STOPS, STOPS_IF_LONGER, DecisionLog, encoded
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.rung_positions import Rungs, amount_in, has_reached
from sweeps.search.schedulers.scheduler import Result, ScheduledTrial, Scheduler, Verdict
from sweeps.texts.wording import amount


class Bracket:
    """Rungs at which trials are compared, each ``eta`` times as far as the previous one."""

    def __init__(self, first: float, eta: float):
        """
        Args:
            first: The first rung.
            eta: One in ``eta`` trials continues.
        """
        self._positions, self._eta = Rungs(first, eta), eta
        self._rewards = defaultdict[float, dict[str, float]](dict)
        """Rewards by trial, at each rung."""

    def at(self, reached: float) -> tuple[float, dict[str, float]] | None:
        """Return the furthest rung that was reached, and the rewards there by trial; None before the first."""
        rung = self._positions.furthest(reached)
        return None if rung is None else (rung, self._rewards[rung])

    def forget(self, trial: str) -> None:
        """Remove a trial from all rungs."""
        for rewards in self._rewards.values():
            rewards.pop(trial, None)

    def least(self, rewards: Sequence[float]) -> float:
        """Return the minimum reward within the best 1/eta."""
        return float(np.percentile(rewards, (1 - 1 / self._eta) * 100))

    def compare(self, trial: str, reached: float, reward: float) -> bool | None:
        """Add a report to the furthest rung that it reached.

        Returns:
            Whether the report is worse than the best 1/eta of those that reached the rung before; None if the report
            reaches no new rung.
        """
        if (at := self.at(reached)) is None or trial in at[1]:
            return None
        _, rewards = at
        others = compared(rewards)
        is_worse = bool(others) and reward < self.least(others)
        rewards[trial] = reward
        return is_worse


def compared(rewards: Mapping[str, float]) -> list[float]:
    """Return the rewards with which a later one is compared. Infinite rewards, which have no percentiles, are left out;
    earlier versions also recorded those of infinitely bad values."""
    return [reward for reward in rewards.values() if math.isfinite(reward)]


class Asha(Scheduler):
    """Asynchronous successive halving (Li et al., 2018, https://arxiv.org/abs/1810.05934).

    Stops a trial at a rung if it is worse than the best 1/eta of those that reached that rung before it. A report
    beyond several rungs counts at the furthest of them. A trial that reports NaN or an infinitely bad value is stopped
    from the first rung on, and others are not compared with it.
    """

    def __init__(
        self,
        resource: str,
        grace: float,
        eta: float,
        brackets: int,
        seed: int,
        objectives: Objectives,
        decisions: DecisionLog | None = None,
    ):
        """
        Args:
            resource: Key of the result in which the rungs are counted.
            grace: The first rung, before which no trial is stopped.
            eta: One in ``eta`` trials continues.
            brackets: Number of brackets: each leaves out one more rung at the beginning.
            seed: Seed of the choice of a trial's bracket.
        """
        super().__init__(objectives, decisions)
        self._resource, self._grace = resource, grace
        self._brackets = [Bracket(grace * eta**skipped, eta) for skipped in range(brackets)]
        self._seed, self._eta = seed, eta
        for number, event in self._decisions.events:
            self.repeat(number, event)

    def repeat(self, number: str | None, event: Mapping[str, Any]) -> bool | None:
        assert number is not None
        if BROKEN in event:
            self._forget(number)
            return True
        return bool(self._bracket(number).compare(number, float(event["reached"]), self._reward(event)))

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict:
        if (broken := self._violation(result)) is not None:  # it cannot be the best any more
            self._forget(trial.id)
            self._decisions.record(trial.id, {BROKEN: broken, STOPS: True})
            return Verdict.STOP
        if self._has_diverged(result):
            stops = has_reached(amount_in(result, self._resource) or 0.0, self._grace)
        else:
            stops = self._is_worse(trial.id, result, STOPS)
        return Verdict.STOP if stops else Verdict.CONTINUE

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        """Compare the last report as well, and record whether it would stop the trial if the trial is extended
        later."""
        if not self._has_diverged(result) and self._violation(result) is None:
            self._is_worse(trial.id, result, STOPS_IF_LONGER)

    def _has_diverged(self, result: Result) -> bool:
        """Whether the value is NaN or infinitely bad."""
        value = self._sign * result.get(self._objective, 0.0)
        return math.isnan(value) or value == -math.inf

    def _is_worse(self, number: str, result: Result, consequence: str) -> bool:
        reached = amount_in(result, self._resource)
        if reached is None or self._objective not in result:
            return False
        reward = self._sign * result[self._objective]
        is_worse = self._bracket(number).compare(number, float(reached), float(reward))
        if is_worse is None:
            return False
        event = {"reached": encoded(reached), "reward": encoded(reward), consequence: is_worse}
        self._decisions.record(number, event)
        return is_worse

    def _forget(self, number: str) -> None:
        """Remove a trial that violated a limit from the rungs: its value may be out of reach within the limit."""
        self._bracket(number).forget(number)

    def explain(self, number: str, event: Mapping[str, Any]) -> str | None:
        if BROKEN in event:
            return str(event[BROKEN])
        bracket, reward = self._bracket(number), self._reward(event)
        at = bracket.at(float(event["reached"]))
        if at is None or number in at[1]:
            return None
        rung, rewards = at
        value = f"at the rung of {amount(rung, self._resource)} its {self._objective} was {self._sign * reward:.6g}"
        others = compared(rewards)
        if not others:
            return f"{value}; it was the first there"
        least = bracket.least(others)
        verdict = "worse than" if reward < least else "at least as good as"
        share = f"the best 1/{self._eta:g} of the {len(others)} trials that were there before"
        return f"{value}, {verdict} {self._sign * least:.6g}, the bound of {share}"

    def _reward(self, event: Mapping[str, Any]) -> float:
        """Return the reward in the record of a report; a record of ``median``, a scheduler of release 0.2, contains the
        value."""
        return float(event["reward"]) if "reward" in event else self._sign * float(event["value"])

    def _bracket(self, number: str) -> Bracket:
        """Return a trial's bracket, drawn by its number; brackets with more rungs are more likely."""
        weights = [math.exp(-skipped) for skipped in range(len(self._brackets))]
        return random.Random(f"{self._seed}/{number}/bracket").choices(self._brackets, weights)[0]
