"""The default scheduler, which pauses trials if that costs little, and otherwise stops them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sweeps.constants import SAVED
from sweeps.search.schedulers.freeze_thaw import FreezeThaw
from sweeps.search.schedulers.scheduler import Result

CHOSEN = "chosen"
"""Event in the decision log: whether trials are paused (``pauses_trials``), and the ``reason``."""
NOT_PAUSED = "trials that fall behind are stopped, and not paused"
"""Beginning of the reason for that choice."""
MOST = 0.05
"""Maximum part of a training that saving at each evaluation and one restart may take."""


class Automatic(FreezeThaw):
    """``FreezeThaw`` that measures the cost of a pause in the first trials. If it is too high, trials that would
    pause are stopped from then on."""

    def __init__(self, *args: Any, announce: Callable[[str], None] = lambda text: None, **named: Any):
        """
        Args:
            args: As for ``FreezeThaw``.
            announce: Shows the user a line with the choice and its reason.
            named: As for ``FreezeThaw``.
        """
        self._is_chosen, self._announce = False, announce
        super().__init__(*args, **named)

    def _apply(self, trial: str | None, event: Mapping[str, Any]) -> None:
        if event["event"] == CHOSEN:
            self._is_chosen, self._pauses = True, bool(event["pauses_trials"])
        else:
            super()._apply(trial, event)

    @property
    def may_pause(self) -> bool:
        return self._pauses

    def _measure(self, trial: str, result: Result) -> None:
        super()._measure(trial, result)
        if self._is_chosen:
            return
        overhead = self._overhead.of_training(self._model.longest) if self._overhead.is_reliable else None
        if result.get(SAVED) is False:
            self._choose(f"{NOT_PAUSED}: the trials report without checkpoints", pauses=False)
        elif overhead is not None and (share := sum(overhead)) > MOST:
            reason = f"saving and restarting would take {share:.0%} of a training, more than {MOST:.0%}"
            self._choose(f"{NOT_PAUSED}: {reason}", pauses=False)
        elif overhead is not None:
            self._choose(f"the less promising trials are paused, which costs {share:.1%} of a training", pauses=True)

    def _choose(self, reason: str, *, pauses: bool) -> None:
        event = {"event": CHOSEN, "pauses_trials": pauses, "reason": reason}
        self._apply(None, event)
        self._decisions.record(None, event)
        self._announce(f"search.scheduler.kind=auto: {reason}")
