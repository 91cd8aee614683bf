"""When a slot without a trial gives its room to others, and one whose trial is paused, or stopped while it starts."""

from __future__ import annotations

import asyncio

import pytest
from attempts import begin, end_of

from sweeps.runtime import slot_queue
from sweeps.runtime.answers import Answer
from sweeps.runtime.attempt import StopRequest
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended, Report
from sweeps.runtime.slot_queue import SlotQueue, StartedGroup

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
    await begin(broker)
    await broker.waits_for_room("slot")
    if how == "stop_for_good":
        await broker.stop_for_good("0000")
    elif how == "stop_all":
        await broker.stop_all()
    end = await end_of(broker.next_outcome("0000", 60))
    assert end == Ended("0000", 1, timestamp_ms=end.timestamp_ms)
    assert await broker.next_assignment("slot", 0) is None, "workers that find room now train nothing"
    assert not await broker.reserve("slot"), "the actor's next trial gets other workers"


async def paused(broker: Broker) -> None:
    """A trial that the scheduler has paused at a report; its workers have not noticed that."""
    await begin(broker)
    await broker.slot_started("slot", StartedGroup(workers=["a worker"]))
    waits = asyncio.create_task(broker.post_and_wait([Report("0000", 1, 3, {"eval/loss": 1.0}, 0)]))
    await asyncio.sleep(0)
    await broker.answer([Answer("0000", 1, returns=True)])
    assert await asyncio.wait_for(broker.wait_for_stop("0000", 1), 1) is StopRequest.SAVE
    await waits


async def test_the_workers_of_a_paused_trial_leave_it_and_give_their_room_to_others() -> None:
    broker = Broker()
    await paused(broker)
    await broker.worker_finished("0000", 1, 0, 1, 100.0, 3)
    freed = asyncio.create_task(broker.next_assignment("slot", 1))
    await asyncio.sleep(0)
    await begin(broker, "0001", "other")
    await broker.waits_for_room("other")
    assert await asyncio.wait_for(freed, 1) is None
    assert [(each.saved_step, each.moved) for each in await broker.drain(0.1) if isinstance(each, Ended)] == [(3, None)]


async def test_a_paused_trial_that_other_workers_continue_begins_when_its_own_have_left() -> None:
    broker = Broker()
    await paused(broker)
    begins = asyncio.create_task(broker.begin("0000"))
    await asyncio.sleep(0.05)
    assert not begins.done(), "both attempts would use one folder"
    await broker.worker_finished("0000", 1, 0, 1, 100.0, 3)
    assert (await begins).attempt == 2
    end = await broker.wait_for_end("slot", 1, is_patient=False)
    assert end is not None, "its slot could take no other trial"
    assert (end.attempt, end.error, end.memory_mib) == (1, None, (100.0,))
    assert [type(each) for each in await broker.drain(0.1)] == [Report, Ended]
