"""A process of the broker that takes the place of one that has died: what it knows, and what trials do with it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from attempts import SPEC, assignment, begin, end_of
from ray.exceptions import ActorUnavailableError

from sweeps.constants import LAST_DELIVERED
from sweeps.runtime.answers import Answer, Outcome
from sweeps.runtime.attachment import BROKER_DIED, Begun, NotAttached, NotCurrent, Told, TrialSoFar
from sweeps.runtime.attempt import StopRequest
from sweeps.runtime.broker import CUT_OFF, Broker
from sweeps.runtime.broker_sides import TrialSide
from sweeps.runtime.events import Ended, Log, Report
from sweeps.runtime.trainable import _last_delivered

pytestmark = pytest.mark.anyio


async def test_trials_begin_once_the_driver_has_attached_and_with_the_next_number() -> None:
    broker = Broker(is_new=False)
    with pytest.raises(NotAttached):
        await broker.drain(0)
    lost = Ended("0000", 2, BROKER_DIED, moved=BROKER_DIED)
    begins = asyncio.create_task(broker.begin("0000", lost=lost))
    await asyncio.sleep(0.05)
    assert not begins.done()
    await broker.attach({"0000": TrialSoFar(attempt=1, failures=1, step=15)})
    begun = await begins
    await broker.post(Log("0000", 2, 25, {"loss": 1.0}, 0))  # of the attempt before
    await broker.post(Log("0000", 3, 25, {"loss": 1.0}, 0))
    assert begun == Begun(3, None, lost_after=15)
    assert await broker.begin("0001") == Begun(1, None)
    assert [(type(event), event.attempt) for event in await broker.drain(0.1)] == [(Ended, 2), (Log, 3)]


async def test_a_driver_that_only_the_network_had_cut_off_answers_what_it_takes_when_it_attaches() -> None:
    broker = Broker()
    await broker.begin("0000")
    broker._attempts["0000"].finish(Ended("0000", 1, "its workers hang"))
    (end,) = [*await broker.attach({}), *await broker.drain(1)]
    waits = asyncio.create_task(broker.next_outcome("0000", 60.0))
    await asyncio.sleep(0.05)
    assert not waits.done()
    await broker.answer([Answer("0000", 1, tries_again=True)])
    assert await waits == Outcome({}, end, tries_again=True)


async def test_events_that_were_on_their_way_to_a_driver_that_the_network_had_cut_off_are_posted_again() -> None:
    broker = Broker()
    await broker.begin("0000")
    await broker.post(Log("0000", 1, 10, {"loss": 1.0}, 0))
    assert len(await broker.drain(0.1)) == 1  # which does not arrive
    await broker.attach({"0000": TrialSoFar(attempt=1, step=0)})
    assert await asyncio.wait_for(broker.wait_for_stop("0000", 1), 10) is StopRequest.SAVE
    await broker.stop_waiting_for_answers()
    await broker.worker_finished("0000", 1, 0, 1, 100.0)
    end = await end_of(broker.next_outcome("0000", 10.0))
    assert (end.error, end.moved) == (None, CUT_OFF)
    assert await broker.begin("0000") == Begun(2, None, lost_after=0)


@pytest.mark.parametrize("ends_in_time", [True, False])
async def test_a_trial_that_had_ended_when_the_network_cut_off_its_driver_repeats_its_last_report(
    ends_in_time: bool,
) -> None:
    broker = Broker()
    await begin(broker)
    await broker.post(Report("0000", 1, 40, {"loss": 1.0}, 0, done=True))
    if ends_in_time:
        await broker.worker_finished("0000", 1, 0, 1, 100.0)
    await broker.drain(0.1)  # which does not arrive
    if not ends_in_time:
        await broker.worker_finished("0000", 1, 0, 1, 100.0)
    await broker.attach({"0000": TrialSoFar(attempt=1, step=30)})
    if not ends_in_time:
        assert [type(event) for event in await broker.drain(0.1)] == [Ended]
        await broker.answer([Answer("0000", 1)])
    end = await end_of(broker.next_outcome("0000", 10.0))
    assert end.moved == CUT_OFF
    assert await broker.begin("0000") == Begun(2, 40, lost_after=30)


async def test_what_was_lost_with_the_broker_is_posted_again_by_one_attempt_only() -> None:
    broker = Broker()
    await begin(broker)
    await broker.attach({"0000": TrialSoFar(attempt=1, step=10)})
    await broker.post(Report("0000", 1, 30, {"loss": 1.0}, 0))  # it does not post again what did not arrive
    assert await broker.begin("0000") == Begun(2, 30, lost_after=10)
    assert await broker.begin("0000") == Begun(3, 30, lost_after=10), "its workers have died before they posted it"
    await broker.assign("slot", assignment("0000", 3))
    await broker.post(Report("0000", 3, 40, {"loss": 1.0}, 0))
    assert await broker.begin("0000") == Begun(4, 40, lost_after=None)


async def test_what_the_driver_has_told_holds_for_the_next_process_too() -> None:
    broker = Broker(is_new=False)
    told: list[Told] = [
        ("stop_for_good", ("0000",), {}),
        ("avoid", (), {"nodes": {None: ("bad",)}}),
        ("set_lanes", (4, "1 trains 100; 2 ..."), {}),
    ]
    await broker.attach({}, told)
    assert await broker.lanes() == (4, "1 trains 100; 2 ...")
    await broker.begin("0000")
    assert (await broker.wait_for_stop("0000", 1), await broker.nodes_to_avoid("0000")) == (StopRequest.SAVE, ("bad",))


def test_an_attempt_ends_with_the_process_of_the_broker_and_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(_: Any) -> None:
        raise ActorUnavailableError("it has died", b"0" * 16)

    handle = SimpleNamespace(next_outcome=SimpleNamespace(remote=lambda *_: None))
    for get in (unavailable, lambda _: None):  # while it answers, or before it was asked
        monkeypatch.setattr(ray, "get", get)
        ended = TrialSide(handle).next_outcome("0000", 2, 60.0, 0.0).end
        assert isinstance(ended, Ended)
        assert (ended.trial, ended.attempt, ended.moved, ended.failure) == ("0000", 2, BROKER_DIED, None)


def test_the_handle_of_the_broker_is_called_in_one_file(checkout: Path) -> None:
    methods = [name for name in dir(Broker) if not name.startswith("_")]
    calls = re.compile(rf"(?:broker|actor)\.(?:{'|'.join(methods)})\.remote\(")
    files = sorted((checkout / "sweeps").rglob("*.py"))
    assert [path.name for path in files if calls.search(path.read_text(encoding="utf-8"))] == []


async def test_a_process_that_has_not_begun_an_attempt_says_so_and_lets_its_workers_return() -> None:
    broker = Broker(is_new=False)
    assert (await broker.next_outcome("0000", 10.0), await broker.next_assignment("slot-0000-1", 1)) == (None, None)
    assert not await broker.reserve("slot-0000-1"), "its workers would never hear of the next trial"


async def test_a_process_that_has_not_begun_an_attempt_gives_it_no_workers_and_lets_none_train_on_after_a_report() -> (
    None
):
    broker, given = Broker(is_new=False), assignment("0000", 1)
    for refused in (
        broker.assign("slot", given),
        broker.assign_lane(given, SPEC),
        broker.post_and_wait([Report("0000", 1, 10, {"loss": 1.0}, 0)]),
    ):
        with pytest.raises(NotCurrent):
            await refused


@pytest.mark.parametrize(
    ("begun", "pauses", "posted_again_from"),
    [
        (Begun(1, None), False, None),
        (Begun(2, 20), False, 20),
        (Begun(2, 20), True, None),  # such a trial repeats the report at which it paused
        (Begun(2, None, lost_after=15), False, 15),  # what the broker's process before has not passed on
        (Begun(2, None, lost_after=15), True, 15),
    ],
)
def test_what_the_driver_has_not_heard_is_posted_again(
    begun: Begun, pauses: bool, posted_again_from: int | None
) -> None:
    assert _last_delivered(begun, {}, pauses=pauses) == posted_again_from


def test_what_an_earlier_session_has_heard_is_not_posted_again() -> None:
    assert _last_delivered(Begun(1, None), {LAST_DELIVERED: 30}, pauses=False) == 30
