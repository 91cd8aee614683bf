"""Forecast of a running sweep, computed from its driver's state."""

from __future__ import annotations

import json
import math
import time
from statistics import fmean, median
from typing import TYPE_CHECKING

from sweeps.constants import TAG_FORECAST
from sweeps.report.forecast_text import describe_forecast
from sweeps.search.confirmation_race import MAX_RUNS, MIN_RUNS
from sweeps.search.forecast.remaining_work import Course, SearchSoFar
from sweeps.search.forecast.search_forecast import forecast

if TYPE_CHECKING:
    from sweeps.driver.sweep_state import SweepState
    from sweeps.driver.trial_status import TrialStatus
    from sweeps.plan.stage import PlannedStage
    from sweeps.tracking.forecast_record import Forecast
    from sweeps.tracking.recorder import Recorder

EVERY_S = 5.0
"""Minimum seconds between two forecasts."""
SHARE_OF_RUN = 0.01
"""Minimum time between two forecasts, as a share of the sweep's run time, because each forecast is written to the
journal."""
SHARE_OF_THREAD = 0.05
"""Maximum share of the event loop's time that forecasts take."""
ANNOUNCED_FROM = 0.25
"""Share of the trials that must have ended before logs show a forecast."""
CHANGE = 0.2
"""Relative change of the sweep's expected time above which logs show the forecast again."""


class Forecaster:
    """Keeps the forecast in the sweep's state up to date, and records it."""

    def __init__(self, state: SweepState, recorder: Recorder):
        self._state, self._recorder = state, recorder
        self._next_at = 0.0
        self._made_of: tuple[object, ...] = ()
        self._stage: PlannedStage | None = None
        self._announced_s: float | None = None
        """Expected seconds of the whole sweep or stage that was last logged; NaN if the log explains why they are
        unknown."""

    def look(self) -> None:
        """Update the forecast if it is due and trials have reported since."""
        state = self._state
        if time.monotonic() < self._next_at:
            return
        with state.lock:
            if state.shutdown.status is not None or state.winner is not None:
                return
            if state.stage is not self._stage:
                self._stage, self._announced_s, state.forecast = state.stage, None, None
            made_of = tuple((each.trial, each.state, each.step) for each in state.all_trials)
            ended = sum(each.has_ended for each in state.trials_of(state.stage))
            if made_of == self._made_of or not ended:
                return
            so_far = search_so_far(state)
            wall_s, done = state.wall_s, ended / max(1, state.planned_now)
        began = time.monotonic()
        self._made_of, self._next_at = made_of, began + EVERY_S  # also if the forecast fails, which is logged
        found = forecast(so_far)
        with state.lock:
            state.forecast = found
        self._recorder.attach({}, {TAG_FORECAST: json.dumps(found.as_json())})
        now = time.monotonic()
        self._next_at = now + max(EVERY_S, SHARE_OF_RUN * wall_s, (now - began) / SHARE_OF_THREAD)
        if ANNOUNCED_FROM <= done < 1:
            self._announce(found, math.nan if found.wall_s is None else wall_s + found.wall_s.middle)

    def _announce(self, found: Forecast, whole_s: float) -> None:
        """Log the forecast, and log it again only when the expected time has changed."""
        before = self._announced_s
        if before is not None and (math.isnan(whole_s) or abs(whole_s - before) <= CHANGE * before):
            return
        if lines := describe_forecast(found):
            self._announced_s = whole_s
            self._state.announce("; ".join([lines[0], *(each.removeprefix("forecast: ") for each in lines[1:])]))


def search_so_far(state: SweepState) -> SearchSoFar:
    """Return a forecast's input (trials, parallel places, budgets) for the current stage, or the search after its
    stages."""
    search, now, stage = state.composition.config.search, time.time(), state.stage
    searched = [each for each in state.trials_of(stage) if each.state != "waiting" or each.spans]
    lengths = [each.last_step for each in searched if each.last_step]
    usual = median(lengths) if lengths else None
    trials = [_course(each, usual, now) for each in searched]
    seen = [each for each in searched if each.num_workers]
    repeated = sum(each.has_ended for each in state.repeats)
    confirmed = [max(0, runs * search.confirm - repeated) for runs in (MIN_RUNS, MAX_RUNS)]
    to_follow = 0
    if stage is not None:
        confirmed = [0, 0]
        to_follow = state.num_trials + sum(each.num_trials for each in search.stages[stage.number :])
    return SearchSoFar(
        trials=trials,
        to_start=max(0, state.planned_now - len(searched)),
        places=state.concurrent,
        knows_length=usual is not None,
        limit_s=state.budget_left_s(),
        stage=None if stage is None else stage.number,
        to_follow=to_follow,
        repeats=(confirmed[0], confirmed[1]),
        workers=_mean([each.num_workers for each in seen], 1.0) / state.shared_by,
        # GPUs and cost of a trial are those of its part of a group already, unless the number of parts was measured.
        gpus=_mean([each.needs.get("GPU", 0.0) for each in seen], 0.0) / state.lanes_found,
        hourly_cost=_mean([each.hourly_cost for each in seen], 0.0) / state.lanes_found,
    )


def _mean(values: list[float] | list[int], default: float) -> float:
    return fmean(values) if values else default


def _course(status: TrialStatus, usual: float | None, now: float) -> Course:
    """Return a trial's progress as input of a forecast; ``usual`` is the median of the trials' last steps, None if
    unknown."""
    whole = status.last_step or usual
    held_s = status.held_until(now)
    last = status.reported or (status.step, held_s)

    def progress(step: float, seconds: float) -> float:
        return seconds if whole is None else min(1.0, step / whole)

    first = status.first_reported
    return Course(
        progress=1.0 if status.state == "finished" and whole is not None else progress(*last),
        held_s=last[1] if last[0] or whole is None else 0.0,
        # A paused trial counts as ended: most of them are never continued.
        state="ended" if status.has_ended or status.is_paused else "running",
        first=None if first is None or first[0] >= last[0] else (progress(*first), first[1]),
    )
