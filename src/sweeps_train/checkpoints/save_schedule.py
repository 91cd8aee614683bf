"""Steps at which checkpoints are saved."""

from __future__ import annotations

import math

from sweeps_train.config import Checkpoint
from sweeps_train.config.train import SaveEvery
from sweeps_train.reports.progress import Progress


class SaveSchedule:
    """Decides after each step whether a checkpoint is due. All workers decide alike, since the decision depends only on
    the progress and on times on which they have agreed."""

    def __init__(self, config: Checkpoint, eval_every: int, failures: int, step: int):
        every = config.every
        self._is_auto = every == "auto"
        self._every = every if isinstance(every, SaveEvery) else SaveEvery(steps=every if isinstance(every, int) else 1)
        self.needs_times = config.follows_times
        """Whether ``observe`` must be called."""
        self._at_evaluations = every is None or (self.needs_times and config.includes_evaluations(eval_every))
        self._eval_every, self._failures = eval_every, failures
        self._prior_s = 3600 * config.failure_hours
        self._saved_at = step
        self._interval: int | None = None
        """Steps between two checkpoints if the interval is derived from measured times; None until these are known."""

    def observe(self, trained_s: float, step_s: float, blocked_s: float, write_s: float) -> None:
        """Update the interval from measured seconds, which are equal on all workers: ``blocked_s`` is how long
        the last save stopped the training (0 if there was none), ``write_s`` how long its checkpoint took to write."""
        seconds = 60 * self._every.minutes if self._every.minutes is not None else 0.0
        if self._is_auto:
            if blocked_s == 0:
                return
            between_failures = (self._prior_s + trained_s) / (1 + self._failures)
            seconds = max(write_s, optimal_interval(blocked_s, between_failures))
        self._interval = max(1, round(seconds / step_s))

    def is_due(self, now: Progress, epochs_before: float) -> bool:
        """Whether a checkpoint is due, given the epochs before the last step."""
        return (self._at_evaluations and now.step % self._eval_every == 0) or self._is_interval_over(now, epochs_before)

    def _is_interval_over(self, now: Progress, epochs_before: float) -> bool:
        if self.needs_times:
            if self._interval is None:  # the first one shows what a checkpoint costs
                return self._is_auto and now.step % self._eval_every == 0
            return now.step - self._saved_at >= self._interval
        if self._every.epochs is not None:
            # 0.3 / 0.1 is a little less than 3
            now_saved, before = (
                math.floor(epochs / self._every.epochs + 1e-9) for epochs in (now.epochs, epochs_before)
            )
            return now_saved > before
        assert self._every.steps is not None
        return not self._at_evaluations and now.step % self._every.steps == 0

    def saved(self, step: int) -> None:
        """Record the step of a checkpoint."""
        self._saved_at = step


def optimal_interval(save_s: float, between_failures_s: float) -> float:
    """Return the seconds between checkpoints that minimise the time lost to saving and to repeated work after failures.

    The higher order estimate of J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
    dumps", Future Generation Computer Systems 22 (2006); its first term, the square root of twice the product of the
    arguments, is that of J. W. Young (1974).

    Args:
        save_s: Seconds for which a save stops the training.
        between_failures_s: Mean seconds between failures.

    Example:
        >>> round(optimal_interval(5.0, 24 * 3600.0))
        926
    """
    ratio = save_s / (2 * between_failures_s)
    if ratio >= 1:
        return between_failures_s
    return math.sqrt(2 * save_s * between_failures_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s
