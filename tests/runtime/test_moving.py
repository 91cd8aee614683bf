"""Trials that move to other workers, since their own are about to end: when they do, and what counts as a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from attempts import begin, failed

from sweeps.runtime.attempt import Attempt, StopRequest
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended, Event, Note, Report
from sweeps.runtime.slot_queue import StartedGroup

pytestmark = pytest.mark.anyio


def attempt(events: list[Event]) -> Attempt:
    return Attempt("0000", 1, events.append)


@pytest.mark.parametrize(
    ("end", "moves"),
    [
        (Ended("0000", 1), True),
        (failed("lost"), True),
        (failed("peer", "connection closed by peer"), True),
        (failed("hang", "its workers hang"), True),
        (failed("exception", "shapes (3, 4) and (5, 6) do not match"), False),
    ],
)
def test_an_attempt_that_is_to_move_does_so_unless_its_own_code_fails(end: Ended, *, moves: bool) -> None:
    events: list[Event] = []
    made = attempt(events)
    made.move("its node leaves")
    assert made.stop is StopRequest.SAVE
    (note,) = events
    assert isinstance(note, Note)
    assert note.text.startswith("its node leaves; it saves a checkpoint")
    assert made.finish(end).moved == ("its node leaves" if moves else None)
    assert made.failures == (not moves)


@pytest.mark.parametrize("request_", [StopRequest.SAVE, StopRequest.DISCARD])
def test_an_attempt_that_is_stopped_does_not_move(request_: StopRequest) -> None:
    for stops_first in (True, False):
        events: list[Event] = []
        made = attempt(events)
        if stops_first:
            made.request_stop(request_)
        made.move("its node leaves")
        made.request_stop(request_)
        assert made.finish(Ended("0000", 1)).moved is None
        assert len(events) == (1 if stops_first else 2), "what does not move is not announced"


def test_an_attempt_that_has_reached_its_end_does_not_move() -> None:
    made = attempt([])
    made.move("its node leaves")
    made.post(Report("0000", 1, 9, {"loss": 1.0}, 1000, done=True), ())
    assert made.finish(Ended("0000", 1)).moved is None


def test_a_node_that_was_taken_away_without_a_notice_is_no_failure_and_any_other_loss_is_one() -> None:
    lost = attempt([]).finish(failed("lost"))
    assert lost.moved is None
    taken = attempt([]).finish(failed("lost", "worker 1 on b was lost: its node was taken", taken=True))
    assert taken.moved == "worker 1 on b was lost: its node was taken"


async def train(broker: Broker, slot: str, trial: str, nodes: Sequence[str]) -> None:
    await begin(broker, trial, slot)
    locations = tuple(f"host-{node}" for node in nodes)
    await broker.slot_started(slot, StartedGroup(processes=[(node, 1) for node in nodes], locations=locations))


async def notes(broker: Broker) -> list[tuple[str, str]]:
    return [(event.trial, event.text) for event in await broker.drain(0.05) if isinstance(event, Note)]


async def test_the_trials_of_a_node_that_leaves_move_and_no_others() -> None:
    broker = Broker()
    await train(broker, "one", "0000", ["n1", "n2"])
    await train(broker, "other", "0001", ["n1", "n3"])
    await broker.nodes_leave({"n2": "leaves the cluster in 30 s"})
    ((trial, text),) = await notes(broker)
    assert trial == "0000"
    assert text.startswith("the node of worker 1, host-n2, leaves the cluster in 30 s; it saves")
    assert await asyncio.wait_for(broker.wait_for_stop("0000", 1), 1) is StopRequest.SAVE
    await train(broker, "late", "0002", ["n2"])
    assert [trial for trial, _ in await notes(broker)] == ["0002"], "its workers were being started there"


async def test_a_workers_sigterm_moves_its_trial_unless_ray_is_ending_the_workers() -> None:
    broker = Broker()
    await train(broker, "one", "0000", ["n1", "n2"])
    await train(broker, "other", "0001", ["n1", "n2"])
    await broker.group_ends("other")
    await broker.worker_terminated("other", 0)
    await broker.worker_terminated("gone", 0)
    await broker.worker_terminated("one", 1)
    ((trial, text),) = await notes(broker)
    assert (trial, text.partition(";")[0]) == ("0000", "worker 1 on host-n2 has received SIGTERM and will end")


async def test_a_workers_sigterm_ends_a_slot_without_a_trial() -> None:
    broker = Broker()
    await train(broker, "one", "0000", ["n1"])
    assert (await broker.next_assignment("one", 0)).trial == "0000"
    await broker.worker_finished("0000", 1, 0, 1, 10.0)
    await broker.worker_terminated("one", 0)
    assert await asyncio.wait_for(broker.next_assignment("one", 1), 1) is None


async def test_only_attempts_that_failed_are_counted_as_failures() -> None:
    broker = Broker()
    counted = []
    for number, end in enumerate([Ended("0000", 1), failed("lost"), failed("lost", taken=True), failed("lost")], 1):
        await train(broker, "slot", "0000", ["n1"])
        counted.append((await broker.next_assignment("slot", number - 1)).failures)
        await broker.end(Ended("0000", number, end.error, failure=end.failure))
    await train(broker, "slot", "0000", ["n1"])
    counted.append((await broker.next_assignment("slot", 4)).failures)
    assert counted == [0, 0, 1, 1, 2]
