"""Time and resources that a running sweep is charged with."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import MagicMock

import pytest
from composing import composed_digits

from sweeps.driver.early_end import Shutdown
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus
from sweeps.tracking.trial_history import Span


def test_paused_trials_take_no_place_in_the_account_of_time() -> None:
    nothing: Any = MagicMock()
    state = SweepState("s", composed_digits(), nothing, 2, Shutdown(nothing))
    for number in range(6):
        status = TrialStatus(f"{number:04}", {}, "running", attempt=1, num_workers=2)
        status.holds = {"CPU": 2.0} if number == 0 else {}
        state.trials[status.trial] = status
    time.sleep(0.05)
    state.count_usage()
    workers = state.concurrent * state.fit.num_workers
    assert state.ledger.account().total == pytest.approx(workers * state.wall_s)


def test_a_trial_that_is_to_follow_another_one_takes_no_place_before_the_workers_of_that_one_have_ended() -> None:
    nothing: Any = MagicMock()
    state = SweepState("s", composed_digits(), nothing, 1, Shutdown(nothing))
    for number in range(2):
        status = TrialStatus(f"{number:04}", {}, "running", attempt=1, num_workers=2, holds={"CPU": 2.0})
        state.trials[status.trial] = status
    state.trials["0000"].spans = [Span(held=time.time(), trained=time.time())]
    time.sleep(0.05)
    state.count_usage()
    assert state.ledger.account().total == pytest.approx(state.fit.num_workers * state.wall_s)
    assert state.time()["cpu_s"] == pytest.approx(2 * state.wall_s)


def test_trials_that_share_their_workers_are_charged_once_for_them_where_their_number_is_found() -> None:
    nothing: Any = MagicMock()
    state = SweepState("s", composed_digits(), nothing, 4, Shutdown(nothing), lanes_found=4)
    for number in range(4):
        state.trials[f"{number}"] = TrialStatus(f"{number}", {}, "running", attempt=1, holds={"CPU": 2.0, "GPU": 1.0})
        state.trials[f"{number}"].hourly_cost = 3600.0
    time.sleep(0.05)
    state.count_usage()
    used = state.time()
    assert (used["cpu_s"], used["gpu_s"], used["cost"]) == pytest.approx((2 * state.wall_s, state.wall_s, state.wall_s))
