"""The broker asks running trials to change their number of workers, and lets new ones wait for theirs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from attempts import assignment, die_for_good, end_of, session_of

from sweeps.driver import callbacks
from sweeps.driver.callbacks import LifecycleCallback
from sweeps.runtime import elastic
from sweeps.runtime.answers import Answer, Outcome
from sweeps.runtime.attempt import StopRequest
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended, Log, Note, Report, Started
from sweeps.runtime.lost_worker import NODE_DIED
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.spare_processes import ProcessOrigin
from sweeps.worker_error import WorkerError

pytestmark = pytest.mark.anyio

NUMBERS = (2, 4, 8)
CHANGES = "it changes from {} to {} workers, since {}"
MOVES = "; it saves a checkpoint and continues on other workers, which does not count as a failure"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic, "LOOK_EVERY_S", 0.01)


async def train(broker: Broker, trial: str, *, previous: str | None = None, last_step: int = 30) -> tuple[int, int]:
    """Begin a trial as its actor and its workers do; returns its attempt and its workers."""
    number = await asyncio.wait_for(broker.claim_workers(trial, NUMBERS, 1_000_000, previous), 10)
    attempt = (await broker.begin(trial)).attempt
    slot = f"slot-{trial}-{attempt}"
    await broker.assign(slot, assignment(trial, attempt))
    await broker.slot_started(slot, StartedGroup(workers=["a worker"] * number))
    await broker.post(Started(trial, attempt, 0))
    for step in (10, last_step):
        await broker.post(Log(trial, attempt, step, {"train/loss": 1.0}, 1000 * step))
    return attempt, number


async def with_room(workers: int, trials: int) -> Broker:
    broker = Broker()
    await broker.set_room(workers, trials)
    return broker


async def end_without_driver(broker: Broker, trial: str) -> Ended:
    """The end that a trial's actor learns of, without a driver."""
    await broker.stop_waiting_for_answers()
    return await end_of(broker.next_outcome(trial, 10.0))


async def stop(broker: Broker, trial: str, attempt: int, request: StopRequest = StopRequest.SAVE) -> Ended:
    """Stop as the workers do that are asked to; returns what their trial's actor learns."""
    assert await asyncio.wait_for(broker.wait_for_stop(trial, attempt), 10) is request
    for rank in range(2):
        await broker.worker_finished(trial, attempt, rank, 2, 0.0)
    end = await end_without_driver(broker, trial)
    await broker.close_slot(f"slot-{trial}-{attempt}")
    if request is StopRequest.SAVE:
        await broker.forget_slot(f"slot-{trial}-{attempt}")
    return end


async def notes(broker: Broker) -> list[str]:
    return [event.text for event in await broker.drain(1.0) if isinstance(event, Note)]


async def test_a_trial_that_waits_begins_when_another_one_has_given_workers_back() -> None:
    broker = await with_room(8, 1)
    attempt, workers = await train(broker, "0")
    assert workers == 8
    await broker.set_room(8, 2)
    waiting = asyncio.create_task(train(broker, "1"))
    end = await stop(broker, "0", attempt)
    assert (end.moved, end.error) == (CHANGES.format(8, 4, "another trial waits"), None)
    assert not waiting.done(), "its workers are freed when they have been asked for again"
    assert await train(broker, "0", previous="0") == (2, 4)
    assert await waiting == (1, 4)
    assert await notes(broker) == [CHANGES.format(8, 4, "another trial waits") + MOVES]


async def test_a_survivor_grows_when_the_slot_of_the_last_other_trial_is_closed() -> None:
    broker = await with_room(8, 2)
    survivor, other = await train(broker, "0"), await train(broker, "1")
    assert (survivor[1], other[1]) == (4, 4)
    await stop_at_a_report(broker, "1")
    await broker.set_room(8, 1)
    end = await stop(broker, "1", other[0], StopRequest.DISCARD)
    assert end.moved is None
    assert (await stop(broker, "0", survivor[0])).moved is not None
    assert await train(broker, "0", previous="0") == (2, 8)
    assert await notes(broker) == [CHANGES.format(4, 8, "no trial waits for free workers") + MOVES]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_trial_trains_on_while_the_processes_of_its_new_workers_start(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    started: list[Any] = []
    ready = threading.Event()

    def start(missing: Any, _: Any) -> None:
        started.append(missing)
        assert ready.wait(10)

    monkeypatch.setattr(elastic, "start_spares_and_wait", start)

    broker = await with_room(8, 2)
    survivor, other = await train(broker, "0"), await train(broker, "1")
    processes = [ProcessOrigin(("node", "{}"), was_spare=False)] * 4
    assert await broker.spares_to_start("slot-0-1", processes, False) == {}
    await stop_at_a_report(broker, "1")
    await broker.set_room(8, 1)
    await stop(broker, "1", other[0], StopRequest.DISCARD)
    while not started:
        await asyncio.sleep(0.01)
    assert started == [{("node", "{}"): 8}]
    asked = asyncio.create_task(broker.wait_for_stop("0", survivor[0]))
    await asyncio.sleep(0.1)
    assert not asked.done(), "it trains on"
    if waits:
        await broker.set_room(8, 2)
        waiting = asyncio.create_task(train(broker, "2"))
        await asyncio.sleep(0.1)
        ready.set()
        assert (await waiting)[1] == 4
        assert not asked.done(), "it keeps its workers"
        return
    ready.set()
    assert (await stop(broker, "0", survivor[0])).moved is not None
    assert await train(broker, "0", previous="0") == (2, 8)


async def test_processes_are_started_for_the_next_growth_while_all_trials_train(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(elastic, "start_spares_and_wait", lambda missing, _: started.append(missing))

    broker = await with_room(8, 2)
    await train(broker, "0")
    other = await train(broker, "1")
    processes = [ProcessOrigin(("node", "{}"), was_spare=False)] * 4
    for slot in ("slot-0-1", "slot-1-1"):
        assert await broker.spares_to_start(slot, processes, False) == {}
    await until(lambda: bool(started))
    assert started == [{("node", "{}"): 8}]
    await stop_at_a_report(broker, "1")
    await broker.set_room(8, 1)
    survives = asyncio.create_task(broker.wait_for_stop("0", 1))
    await stop(broker, "1", other[0], StopRequest.DISCARD)
    await asyncio.wait_for(survives, 10)
    assert len(started) == 1, "they are there"


async def test_the_slot_of_a_trial_that_none_follows_is_closed_at_once() -> None:
    broker = await with_room(8, 2)
    await train(broker, "0")
    attempt, _ = await train(broker, "1")
    await stop_at_a_report(broker, "1")
    for rank in range(2):
        await broker.worker_finished("1", attempt, rank, 2, 0.0)
    next_one = asyncio.create_task(broker.next_assignment("slot-1-1", 1))
    await asyncio.sleep(0.1)
    assert not next_one.done(), "another trial may follow"
    await broker.set_room(8, 1)
    assert await asyncio.wait_for(next_one, 1) is None


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def stop_at_a_report(broker: Broker, trial: str) -> None:
    """Stop a trial as the scheduler does."""
    await broker.answer([Answer(trial, 1, returns=True, stops=True)])
    assert await broker.next_outcome(trial, 10.0) == Outcome({})


async def pause(broker: Broker, trial: str) -> None:
    """Pause a trial at a report as the scheduler does."""
    await broker.answer([Answer(trial, 1, returns=True)])
    assert await broker.next_outcome(trial, 10.0) == Outcome({})


async def test_a_trial_that_a_person_stops_while_it_changes_ends() -> None:
    broker = await with_room(8, 1)
    attempt, _ = await train(broker, "0")
    await broker.set_room(8, 2)
    waiting = asyncio.create_task(train(broker, "1"))
    await asyncio.wait_for(broker.wait_for_stop("0", attempt), 10)
    await broker.stop_for_good("0")
    end = await stop(broker, "0", attempt)
    assert end.moved is None
    assert await waiting == (1, 4)


async def test_a_trial_that_is_done_when_it_is_asked_to_change_is_done() -> None:
    broker = await with_room(8, 1)
    attempt, _ = await train(broker, "0")
    await broker.set_room(8, 2)
    waiting = asyncio.create_task(train(broker, "1"))
    await asyncio.wait_for(broker.wait_for_stop("0", attempt), 10)
    await broker.post(Report("0", attempt, 40, {}, 0, done=True))
    await broker.release_workers("0")
    assert await waiting == (1, 4)


@pytest.mark.parametrize("stops_all", [True, False])
async def test_a_trial_that_waits_begins_when_it_is_to_stop(stops_all: bool) -> None:
    broker = await with_room(8, 1)
    attempt, _ = await train(broker, "0", last_step=10)  # it cannot change yet
    waiting = asyncio.create_task(broker.claim_workers("1", NUMBERS, None, None))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await (broker.stop_all() if stops_all else broker.stop_for_good("1"))
    assert await asyncio.wait_for(waiting, 10) == 2
    stopped = ("0", attempt) if stops_all else ("1", (await broker.begin("1")).attempt)
    assert await asyncio.wait_for(broker.wait_for_stop(*stopped), 10) is StopRequest.SAVE


async def test_an_actor_gives_the_workers_of_its_last_trial_to_its_next_one() -> None:
    broker = await with_room(4, 2)
    await train(broker, "0")
    attempt, _ = await train(broker, "1")
    await stop_at_a_report(broker, "1")
    await stop(broker, "1", attempt, StopRequest.DISCARD)
    assert await train(broker, "2", previous="1") == (1, 2)


async def test_the_workers_of_a_paused_trial_go_to_those_that_train() -> None:
    broker = await with_room(8, 4)
    survivor, paused = await train(broker, "0"), await train(broker, "1")
    assert (survivor[1], paused[1]) == (2, 2)
    await pause(broker, "1")
    assert (await stop(broker, "1", paused[0])).moved is None
    await broker.set_room(8, 1, 1)
    assert (await stop(broker, "0", survivor[0])).moved == CHANGES.format(2, 8, "no trial waits for free workers")
    assert await train(broker, "0", previous="0") == (2, 8)


@pytest.mark.parametrize("moment", ["it has claimed them", "it trains"])
async def test_an_actor_takes_no_workers_from_its_last_trial_if_that_continues_elsewhere(moment: str) -> None:
    broker = await with_room(8, 2)
    for trial in ("0", "1"):
        await train(broker, trial)
        await pause(broker, trial)
        await stop(broker, trial, 1)
    if moment == "it trains":
        assert await train(broker, "1", previous="0") == (2, 4)
    else:
        await broker.claim_workers("1", NUMBERS, 1_000_000, "0")
    assert await train(broker, "0", previous="1") == (2, 4)
    waiting = asyncio.create_task(train(broker, "2"))
    await asyncio.sleep(0.05)
    assert not waiting.done(), "all workers are taken"
    waiting.cancel()


@pytest.mark.parametrize(("idle_s", "room"), [(0.0, (8, 1, 2)), (60.0, (8, 3, 0))])
def test_trials_that_stay_paused_are_not_expected_to_take_workers(
    monkeypatch: pytest.MonkeyPatch, idle_s: float, room: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(callbacks, "expect_progress", lambda _: None)
    monkeypatch.setattr(callbacks, "IDLE_S", idle_s)
    told: list[tuple[int, ...]] = []
    tell = {"search_over": lambda over: None, "set_room": lambda *room: told.append(room)}
    session = session_of(is_elastic=True, **tell)
    state = {"lock": contextlib.nullcontext(), "unfinished_count": lambda *, is_over: 3, "concurrent": 4, "places": 8}
    vars(session.state).update(state)
    statuses = ("PAUSED", "RUNNING", "PAUSED", "TERMINATED")
    trials: list[Any] = [SimpleNamespace(trial_id=str(number), status=each) for number, each in enumerate(statuses)]
    searcher: Any = SimpleNamespace(ended_because="10 trials have begun")
    LifecycleCallback(session, searcher).on_step_end(0, trials)
    assert told == [room]


@pytest.mark.parametrize("moment", ["it waits for workers", "it has claimed them", "it trains"])
async def test_a_trial_whose_actor_has_died_for_good_gives_its_workers_back(moment: str) -> None:
    broker = await with_room(8, 1)
    if moment == "it trains":
        await train(broker, "1")
    elif moment == "it has claimed them":
        await broker.claim_workers("1", NUMBERS, 1_000_000, None)
    else:
        attempt, _ = await train(broker, "0")
        waiting = asyncio.create_task(broker.claim_workers("1", NUMBERS, 1_000_000, None))
        await stop(broker, "0", attempt)  # it gives it some
    released = list[Any]()
    abandon = broker.abandon_workers
    die_for_good(session_of(is_elastic=True, abandon_workers=lambda trial: released.append(abandon(trial))), "1")
    await asyncio.gather(*released)
    if moment == "it waits for workers":
        await asyncio.wait_for(waiting, 10)
    assert (await train(broker, "0", previous="0"))[1] == 8


async def test_the_death_of_a_node_is_no_failure_and_its_trial_waits_until_the_room_is_known() -> None:
    broker = await with_room(8, 1)
    attempt, workers = await train(broker, "0")
    assert workers == 8
    death = WorkerError("lost", "ActorDiedError", f"worker 5 on b was lost: {NODE_DIED}", 5, 8, "b", "")
    await broker.worker_failed("0", attempt, death)
    await broker.end(Ended("0", attempt, "a worker was lost"))
    end = await end_without_driver(broker, "0")
    assert end.moved == "its node b has died"
    again = asyncio.create_task(train(broker, "0", previous="0"))
    await asyncio.sleep(0.05)
    assert not again.done()
    await broker.set_room(4, 1)
    assert await again == (2, 4)
    assert await notes(broker) == ["its node b has died" + MOVES]
