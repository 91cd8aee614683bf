"""When a slot without a trial gives its room to others, and one whose trial is stopped while its workers start."""

from __future__ import annotations

import asyncio

import pytest
from test_lane_assignment import assignment

from sweeps.runtime import slot_queue
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended
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


@pytest.mark.parametrize("how", ["stop_for_good", "stop_all", "before it began"])
async def test_a_trial_whose_workers_wait_for_room_ends_at_once_when_it_is_stopped(how: str) -> None:
    broker = Broker()
    await broker.stop_waiting_for_answers()
    if how == "before it began":
        await broker.stop_all()
    await broker.begin("0000")
    await broker.assign("slot", assignment("0000", 1))
    await broker.waits_for_room("slot")
    if how == "stop_for_good":
        await broker.stop_for_good("0000")
    elif how == "stop_all":
        await broker.stop_all()
    outcome = await asyncio.wait_for(broker.next_outcome("0000", 60), 5)
    assert outcome is not None
    assert outcome.end == Ended("0000", 1, timestamp_ms=outcome.end.timestamp_ms if outcome.end else 0)
    assert await broker.next_assignment("slot", 0) is None, "workers that find room now train nothing"
    assert not await broker.reserve("slot"), "the actor's next trial gets other workers"
