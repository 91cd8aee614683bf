"""Memory that a trial leaves in a worker is freed: cycles, and objects frozen before they became garbage."""

from __future__ import annotations

import gc
import math
import sys
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train
import torch
from attempts import assignment

from sweeps.runtime import memory_cleanup, worker_loop
from sweeps.runtime.memory_cleanup import MemoryCleanup


class Cycle:
    def __init__(self, mib: int = 0) -> None:
        self.me = self
        self.libraries: list[list[int]] = []
        self.content = bytearray(b"x") * (mib * 2**20)


@pytest.fixture(autouse=True)
def libraries_are_frozen() -> Iterator[None]:
    gc.disable()  # only what is asked for
    gc.freeze()  # a collection of all that was imported takes a second
    yield
    gc.freeze()  # again, as the tests before
    gc.enable()


def test_a_trial_s_reference_cycles_are_freed_also_once_libraries_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_cleanup, "_memory_mib", lambda: 0.0)  # it has not grown
    left = weakref.ref(Cycle())
    assert left() is not None
    MemoryCleanup().run()
    assert gc.get_freeze_count() > 10_000
    assert left() is None


def test_what_was_frozen_before_the_first_trial_is_not_searched_after_it() -> None:
    library = weakref.ref(Cycle())
    gc.freeze()
    MemoryCleanup().run()
    assert library() is not None


def test_a_worker_whose_memory_is_unknown_is_cleaned_up_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> float:
        raise PermissionError("/proc is hidden")

    monkeypatch.setattr(memory_cleanup, "_memory_mib", fail)
    left = weakref.ref(Cycle())
    assert math.isnan(MemoryCleanup().run())
    assert left() is None


@pytest.mark.slow
def test_garbage_that_was_frozen_is_freed_when_memory_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = MemoryCleanup()
    kept = Cycle()
    kept.libraries = [[] for _ in range(2 * memory_cleanup.MANY_OBJECTS)]
    left = weakref.ref(kept)
    worker.run()
    del kept
    worker.run()
    assert left() is not None
    before = memory_cleanup._memory_mib()
    monkeypatch.setattr(memory_cleanup, "_memory_mib", lambda: before + 2 * memory_cleanup.GROWTH_MIB)
    worker.run()
    assert left() is None
    assert gc.get_freeze_count() > 0


@pytest.mark.slow
def test_memory_that_cannot_be_freed_is_told() -> None:
    worker = MemoryCleanup()
    before = worker.run()
    hoard = Cycle(mib=300)
    assert worker.run() > before + 250
    assert hoard.content


def test_memory_in_reserve_is_given_back_to_other_processes_and_the_peak_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_back: list[bool] = []
    forgotten: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append(True))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: forgotten.append(True))
    MemoryCleanup().run()
    assert given_back == forgotten == [True]


def test_each_trial_of_a_worker_ends_with_a_cleanup_whose_rest_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trials = [assignment(name, 1) for name in ("0000", "0001")]
    told: list[tuple[Any, ...]] = []
    broker = SimpleNamespace(
        next_assignment=lambda _, index: [*trials, None][index], worker_finished=lambda *each: told.append(each)
    )
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    monkeypatch.setattr(ray.train, "get_context", lambda: context)
    for name, instead in {
        "MemoryCleanup": lambda: SimpleNamespace(run=lambda: 12.5),
        "WorkerLog": lambda *_: SimpleNamespace(of_trial=lambda _: nullcontext()),
        "in_store": lambda assignment, _: nullcontext((assignment, None)),
        "_train": lambda *_, **__: 40,
    }.items():
        monkeypatch.setattr(worker_loop, name, instead)
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    worker_loop.train_assignments({"slot": "slot", "broker": broker})
    assert told == [("0000", 1, 0, 1, 12.5, 40), ("0001", 1, 0, 1, 12.5, 40)]
