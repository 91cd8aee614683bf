"""When a slot without a trial gives its room to others."""

from __future__ import annotations

import asyncio

import pytest

from sweeps.runtime import slot_queue
from sweeps.runtime.slot_queue import SlotQueue

pytestmark = pytest.mark.anyio


async def test_a_slot_that_is_reserved_before_its_workers_ask_again_waits_for_its_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slot_queue, "IDLE_S", 0.0)

    queue, search_over = SlotQueue(), asyncio.Event()
    search_over.set()
    await queue.add("first")
    taken = [await queue.take(0)]
    queue.reserve()
    queue.release_when_idle(1, search_over)
    assert not queue.is_idle
    next_one = asyncio.create_task(queue.take(1))
    await asyncio.sleep(0.05)  # the machine is busy
    await queue.add("second")
    taken.append(await next_one)
    queue.release_when_idle(2, search_over)
    assert [*taken, await queue.take(2)] == ["first", "second", None]
