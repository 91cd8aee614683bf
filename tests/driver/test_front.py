"""The best trials of a running sweep: whether one is among them is answered without a look at all."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from composing import composed_digits

from sweeps.driver.early_end import Shutdown
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus

TWO = ("search.metric=[eval/accuracy,eval/loss]", "search.mode=[max,min]", "search/scheduler=none")


def made(*overrides: str) -> SweepState:
    nothing: Any = None
    return SweepState("s", composed_digits(*overrides), nothing, 2, Shutdown(nothing))


def trial(number: int, values: tuple[float, ...] | None) -> TrialStatus:
    return TrialStatus(f"{number:04}", {}, "finished", values=values)


@pytest.mark.parametrize("objectives", [(), TWO])
def test_a_trial_is_in_the_front_if_it_is_there(objectives: tuple[str, ...]) -> None:
    draw, state = random.Random(0), made(*objectives)
    number_of_values = 2 if objectives else 1
    seen = set()
    for number in range(200):
        status = trial(number, tuple(float(draw.randint(0, 30)) for _ in range(number_of_values)))
        match draw.randint(0, 9):
            case 0:
                status.values = None
            case 1:
                status.state = "failed"
            case 2:
                status.violation = "too large"
            case 3:
                status.stage = 1
        state.trials[status.trial] = status
        if number % 17 == 0 and state.front():
            state.front()[0].violation = "too large, as a later report says"
        found = state.is_in_front(status)
        assert found == any(each is status for each in state.front())
        seen.add(found)
    assert seen == {False, True}
    state.winner = "0000"
    assert state.is_in_front(state.trials["0000"])
    assert not state.is_in_front(state.trials["0001"])


def test_it_takes_no_longer_among_many_trials() -> None:
    def seconds(number: int) -> float:
        state = made()
        state.trials |= {status.trial: status for status in (trial(each, (each / number,)) for each in range(number))}
        state.front()
        worse, taken = state.trials["0010"], []
        for _ in range(5):
            began = time.process_time()
            for _ in range(100):
                assert not state.is_in_front(worse)
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(10_000) < 10 * seconds(100)
