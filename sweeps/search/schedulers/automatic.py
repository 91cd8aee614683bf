"""The default scheduler: pauses trials where that costs little, and else stops them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial

from sweeps.constants import COMPLETED, MAY_PAUSE, TRIAL
from sweeps.search.schedulers.freeze_thaw import FreezeThaw
from sweeps.search.schedulers.pause_cost import PauseCost
from sweeps.search.schedulers.pausing import limiter_of

CHOSEN = "chosen"
"""The decision whether trials are paused; ``pauses_trials`` tells, and ``reason`` says why."""


class Automatic(FreezeThaw):
    """``FreezeThaw``, which measures at the first trials what a pause costs. Where that is too much, trials that are
    not among the best 1/eta of a rung are stopped from then on, as in asynchronous successive halving."""

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
            evaluations: Number of evaluations of a whole training, if it is known.
            announce: Tells people in a line what was chosen, and why.
            named: As for ``FreezeThaw``.
        """
        self._is_chosen, self._cost, self._announce = False, PauseCost(evaluations), announce
        self._num_begun = 0
        super().__init__(*args, **named)

    def _apply(self, trial: str | None, event: Mapping[str, Any]) -> None:
        if event["event"] == CHOSEN:
            self._is_chosen, self._pauses = True, bool(event["pauses_trials"])
        else:
            super()._apply(trial, event)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        trial.config[MAY_PAUSE] = self._pauses
        super().on_trial_add(tune_controller, trial)
        self._num_begun += 1
        # The first trials wait for the start of their workers.
        self._cost.begin(trial.config[TRIAL], counts=self._num_begun > limiter_of(tune_controller).max_concurrent)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        trial = super().choose_trial_to_run(tune_controller)
        if trial is not None:
            trial.config[MAY_PAUSE] = self._pauses
            self._cost.begin(trial.config[TRIAL], counts=True)
        return trial

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        if not self._is_chosen and not self._decisions.is_resumed_later():
            reason = self._cost.report(trial.config[TRIAL], result)
            if reason is not None:
                self._choose(f"trials that fall behind are stopped, and not paused: {reason}", pauses=False)
            elif (share := self._cost.share) is not None:
                self._choose(
                    f"trials that promise little are paused, which costs {share:.1%} of a training", pauses=True
                )
        return super().on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        if result.get(COMPLETED):
            self._cost.complete(trial.config[TRIAL])
        super().on_trial_complete(tune_controller, trial, result)

    def _choose(self, reason: str, *, pauses: bool) -> None:
        event = {"event": CHOSEN, "pauses_trials": pauses, "reason": reason}
        self._apply(None, event)
        self._decisions.record(None, event)
        self._announce(f"search.scheduler.kind=auto: {reason}")
