"""The state of a sweep is read by one thread while another one adds trials."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from composing import composed_digits

from sweeps.driver.early_end import Shutdown
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus

READS: dict[str, Callable[[SweepState], Any]] = {
    "progress": lambda state: state.progress,
    "counts": lambda state: state.counts(),
    "repeats": lambda state: state.repeats,
    "time": lambda state: state.time(),
    "usage": lambda state: state.count_usage(),
}


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("read", READS)
def test_the_state_is_read_while_another_thread_adds_trials(read: str) -> None:
    nothing: Any = None
    state = SweepState("s", composed_digits(), nothing, 2, Shutdown(nothing))
    finished = threading.Event()

    def add(numbers: range) -> None:
        for number in numbers:
            state.trials[f"{number:04}"] = TrialStatus(f"{number:04}", {}, "finished")

    def add_more() -> None:
        add(range(2_000, 4_000))
        finished.set()

    add(range(2_000))
    adds = threading.Thread(target=add_more)
    adds.start()
    while not finished.is_set():
        READS[read](state)
    adds.join()
    assert len(state.trials_of()) == 4_000
