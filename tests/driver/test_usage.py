"""Time and resources that a running sweep is charged with."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import MagicMock

import pytest

from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep_config import compose_sweep
from sweeps.driver.shutdown import Shutdown
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus


def test_paused_trials_take_no_place_in_the_account_of_time() -> None:
    nothing: Any = MagicMock()
    state = SweepState("s", compose_sweep("digits", [], ConfSearchPath()), nothing, 2, Shutdown(nothing))
    for number in range(6):
        status = TrialStatus(f"{number:04}", {}, "running", attempt=1, num_workers=2)
        status.holds = {"CPU": 2.0} if number == 0 else {}
        state.trials[status.trial] = status
    time.sleep(0.05)
    state.count_usage()
    workers = state.concurrent * state.fit.num_workers
    assert state.ledger.account().total == pytest.approx(workers * state.wall_s)
