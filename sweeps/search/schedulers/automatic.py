"""The default scheduler, which pauses trials if that costs little, and otherwise stops them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweeps.constants import COMPLETED
from sweeps.search.schedulers.freeze_thaw import FreezeThaw
from sweeps.search.schedulers.pause_cost import PauseCost
from sweeps.search.schedulers.places import Places
from sweeps.search.schedulers.scheduler import Result, ScheduledTrial, Turn, Verdict

CHOSEN = "chosen"
"""Event in the decision log: whether trials are paused (``pauses_trials``), and the ``reason``."""


class Automatic(FreezeThaw):
    """``FreezeThaw`` that measures the cost of a pause in the first trials. If it is too high, trials that would
    pause are stopped from then on."""

    def __init__(
        self,
        *args: Any,
        evaluations: float | None = None,
        announce: Callable[[str], None] = lambda text: None,
        **named: Any,
    ):
        """
        Args:
            args: As for ``FreezeThaw``.
            evaluations: Number of evaluations of a whole training, if known.
            announce: Shows the user a line with the choice and its reason.
            named: As for ``FreezeThaw``.
        """
        self._is_chosen, self._cost, self._announce = False, PauseCost(evaluations), announce
        self._num_begun = 0
        super().__init__(*args, **named)
        self._earlier = {name for name, _ in self._decisions.events}
        """Trials of earlier sessions that have not reported in this one. Their first report may repeat their last one,
        without any training before it."""

    def _apply(self, trial: str | None, event: Mapping[str, Any]) -> None:
        if event["event"] == CHOSEN:
            self._is_chosen, self._pauses = True, bool(event["pauses_trials"])
        else:
            super()._apply(trial, event)

    @property
    def may_pause(self) -> bool:
        return self._pauses

    def add(self, trial: ScheduledTrial, places: Places) -> bool:
        waits = super().add(trial, places)
        self._num_begun += 1
        # The first trials wait for the start of their workers.
        self._cost.begin(trial.id, counts=self._num_begun > places.max_concurrent and trial.id not in self._earlier)
        return waits

    def next(self, live: Sequence[ScheduledTrial], places: Places, *, is_over: bool) -> Turn:
        turn = super().next(live, places, is_over=is_over)
        if turn.resumed is not None:
            self._cost.begin(turn.resumed.id, counts=turn.resumed.id not in self._earlier)
        return turn

    def report(self, trial: ScheduledTrial, result: Result, places: Places) -> Verdict:
        self._earlier.discard(trial.id)
        if not self._is_chosen:
            reason = self._cost.report(trial.id, result)
            if reason is not None:
                self._choose(f"trials that fall behind are stopped, and not paused: {reason}", pauses=False)
            elif (share := self._cost.share) is not None:
                self._choose(
                    f"the less promising trials are paused, which costs {share:.1%} of a training", pauses=True
                )
        return super().report(trial, result, places)

    def complete(self, trial: ScheduledTrial, result: Result, places: Places) -> None:
        if result.get(COMPLETED):
            self._cost.complete(result)
        super().complete(trial, result, places)

    def _choose(self, reason: str, *, pauses: bool) -> None:
        event = {"event": CHOSEN, "pauses_trials": pauses, "reason": reason}
        self._apply(None, event)
        self._decisions.record(None, event)
        self._announce(f"search.scheduler.kind=auto: {reason}")
