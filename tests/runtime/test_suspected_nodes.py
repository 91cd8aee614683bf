"""Nodes of failed attempts: which failures may be theirs, how the next attempt waits for their check, where others are
placed meanwhile, and what is avoided; and workers that wait for room, which is no failure."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from attempts import SPEC, begin, failed

from sweeps.runtime import slot_queue, suspected_nodes, worker_group
from sweeps.runtime.attempt import Attempt, may_be_the_nodes
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended, Event, Report, Waiting
from sweeps.runtime.node_resources import NODE_ID_LABEL, label
from sweeps.runtime.report_log import ReportLog
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.trial_cost import CostMeter
from sweeps.runtime.trials_at_once import Workers

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (failed("lost", "worker 0 on a was lost"), True),
        (failed("hang", "its workers hang"), True),
        (failed("exception", "CUDA error: an illegal memory access was encountered"), True),
        (failed("exception", "[Errno 5] Input/output error"), True),
        (failed("exception", "shapes (3, 4) and (5, 6) do not match"), False),
        (Ended("0000", 1), False),
        (Ended("0000", 1, "out of memory", halved_to=2), False),
    ],
)
def test_a_failure_may_be_the_nodes_if_a_device_the_network_or_a_worker_failed(end: Ended, expected: bool) -> None:
    assert may_be_the_nodes(end) is expected


def nodes_with(cpus: dict[str, float]) -> list[dict[str, float]]:
    """Nodes by their ids, with so many free CPUs."""
    return [{"CPU": amount, label(NODE_ID_LABEL, name): math.inf} for name, amount in cpus.items()]


async def lose(broker: Broker, nodes: Sequence[str] = ("n1", "n2")) -> Ended:
    """Begin a trial on some nodes and lose a worker; returns the attempt's end."""
    await begin(broker)
    await broker.slot_started("slot", StartedGroup(processes=[(node, 1) for node in nodes]))
    await broker.end(failed("lost", "worker 0 on a was lost"))
    (end,) = [event for event in await broker.drain(1) if isinstance(event, Ended)]
    return end


async def test_the_next_attempt_waits_until_the_nodes_of_a_failure_were_checked() -> None:
    broker = Broker()
    await broker.check_nodes()
    assert (await lose(broker)).suspected == ("n1", "n2")
    assert await broker.nodes_to_avoid("0001") == (), "other trials do not wait"
    waiting = asyncio.create_task(broker.nodes_to_avoid("0000"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await broker.avoid({None: ()}, ("n1",))
    await asyncio.sleep(0.05)
    assert not waiting.done(), "that was the check of another failure"
    await broker.avoid({None: ("n2",)}, ("n1", "n2"))
    assert await waiting == ("n2",)


def workers(number: int, **where: Any) -> Workers:
    return Workers(number, {"CPU": 1.0}, **where)


ONE = workers(1)


@pytest.mark.parametrize(
    ("left", "wanted", "expected"),
    [
        ({"n1": 1, "n2": 0, "n3": 1}, ONE, ("n1", "n2")),
        ({"n1": 1, "n2": 1, "n3": 0}, ONE, ()),  # the others are full
        ({"n1": 1, "n2": 1, "n3": 1, "bad": 9}, workers(2), ()),  # one worker finds room, not both
        ({"n1": 1, "n2": 1, "n3": 1, "n4": 1}, workers(2), ("n1", "n2")),
        ({"n1": 1, "n3": 1, "n4": 1}, workers(2, placement="STRICT_PACK"), ()),
        ({"n1": 1, "n3": 9}, workers(1, labels={"zone": "a"}), ()),
    ],
)
async def test_workers_are_placed_beside_nodes_whose_check_runs_if_others_have_room(
    monkeypatch: pytest.MonkeyPatch, left: dict[str, float], wanted: Workers, expected: tuple[str, ...]
) -> None:
    monkeypatch.setattr(suspected_nodes, "free_nodes", lambda: nodes_with(left))

    broker = Broker()
    await broker.check_nodes()
    await broker.avoid({None: ("bad",)})
    assert await broker.nodes_to_avoid_now(wanted) == ("bad",)
    await lose(broker)
    assert await broker.nodes_to_avoid_now(wanted) == ("bad", *expected)
    await broker.avoid({None: ("bad", "n1")}, ("n1", "n2"))
    assert await broker.nodes_to_avoid_now(wanted) == ("bad", "n1"), "the check is over"


@pytest.mark.parametrize("node", ["n1", "n3"])
async def test_a_slot_without_a_trial_is_room_for_another_one_and_is_not_kept_on_a_node_whose_check_runs(
    monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    left: dict[str, float] = {"n1": 0, "n2": 0, "n3": 0}
    monkeypatch.setattr(suspected_nodes, "free_nodes", lambda: nodes_with(left))

    broker = Broker()
    await broker.check_nodes()
    await lose(broker)
    await begin(broker, "0001", "idle")
    await broker.slot_started("idle", StartedGroup(processes=[(node, 1)], reserved={"CPU": 1.0}))
    assert (await broker.next_assignment("idle", 0)).trial == "0001"
    idle = asyncio.create_task(broker.next_assignment("idle", 1))
    await asyncio.sleep(0.05)
    assert await broker.nodes_to_avoid_now(ONE) == (("n1", "n2") if node == "n3" else ())
    n3 = left.pop("n3")
    assert await broker.nodes_to_avoid_now(ONE) == (), "a dead node has no room"
    left["n3"] = n3
    assert await broker.reserve("idle", (), ONE), "there is no room elsewhere, or it is elsewhere"
    left["n3"] = 1
    assert await broker.reserve("idle", (), ONE) is (node == "n3")
    idle.cancel()


async def test_nodes_of_workers_that_were_taken_away_are_not_suspected() -> None:
    broker = Broker()
    await broker.check_nodes()
    await begin(broker)
    await broker.slot_started("slot", StartedGroup(processes=[("n1", 1)], locations=("a",)))
    await broker.nodes_leave({"n1": "leaves the cluster"})
    await broker.end(failed("lost", "worker 0 on a was lost"))
    (end,) = [event for event in await broker.drain(1) if isinstance(event, Ended)]
    assert (end.moved is not None, end.suspected) == (True, ()), "nobody checks it, so nobody may wait for that"


@pytest.mark.parametrize(("now", "expected"), [((), None), (("b",), None), (("b", "n1"), "!in(b,n1)")])
def test_ray_train_is_told_which_nodes_to_avoid_when_the_workers_are_placed(
    monkeypatch: pytest.MonkeyPatch, now: tuple[str, ...], expected: str | None
) -> None:
    monkeypatch.setattr(worker_group, "remove_orphaned_groups", lambda: None)  # asks Ray
    asked: list[Any] = []

    def nodes_to_avoid_now(*of: Any) -> tuple[str, ...]:
        asked.append(of)
        return now

    broker: Any = SimpleNamespace(nodes_to_avoid_now=nodes_to_avoid_now)
    spec = replace(SPEC, avoid=("b",), workers=workers(2, labels={"zone": "a"}))
    told = worker_group._SlotHooks("slot", broker, spec).on_controller_start_worker_group()
    assert told == (expected and {"zone": "a", NODE_ID_LABEL: expected})
    assert asked == [(spec.workers,)]


async def test_without_checks_nothing_is_suspected_and_no_trial_waits() -> None:
    broker = Broker()
    assert (await lose(broker)).suspected == ()
    assert await broker.nodes_to_avoid("0000", "l4") == ()


async def test_a_slot_on_a_node_to_avoid_takes_no_further_trial() -> None:
    broker = Broker()
    await lose(broker, ["n1"])
    assert await broker.reserve("slot", ("n2",))
    assert not await broker.reserve("slot", ("n1",))


async def test_workers_that_wait_for_room_are_announced_once_and_do_not_count_as_silent() -> None:
    published: list[Event] = []
    attempt = Attempt("0000", 1, published.append)
    await asyncio.sleep(0.1)
    assert attempt.silence(0.01)[0] >= 0.1
    for _ in range(2):
        attempt.waits_for_room()
    assert published == [Waiting("0000", 1)]
    assert attempt.silence(0.01)[0] < 0.1
    waited, allowed = attempt.silence(0.01, start_timeout_s=3600.0)
    assert (waited >= 0.1, allowed) == (True, 3600.0), "nodes that an autoscaler adds are not waited for without end"


def test_a_trial_s_cost_goes_on_from_that_of_its_earlier_attempts(tmp_path: Any) -> None:
    assignment: Any = SimpleNamespace(hourly={"system/cost": 3600.0}, checkpoint_folder=str(tmp_path), spent={})
    assert 0.0 <= CostMeter(assignment).at_report(20)["system/cost"] < 60.0
    log = ReportLog(str(tmp_path))
    log.write(Report("0000", 1, 10, {"system/cost": 500.0}, 0))
    log.close()
    assert 500.0 <= CostMeter(assignment).at_report(20)["system/cost"] < 560.0
    assert CostMeter(SimpleNamespace(hourly={}, checkpoint_folder="", spent={})).at_report(1) == {}  # type: ignore[arg-type]


@pytest.mark.parametrize(("is_kept", "is_full"), [(False, True), (True, True), (False, False)])
async def test_a_trial_that_waits_for_room_gets_that_of_a_slot_without_one_unless_a_trial_is_about_to_come(
    monkeypatch: pytest.MonkeyPatch, *, is_kept: bool, is_full: bool
) -> None:
    looks = []

    def waiting() -> int:
        looks.append(1)
        return int(is_full)

    monkeypatch.setattr(slot_queue, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(slot_queue, "groups_without_nodes", waiting)

    async def looked() -> None:
        until = len(looks) + 2
        while len(looks) < until:
            await asyncio.sleep(0.01)

    broker = Broker()
    await begin(broker, "0000", "idle")
    await broker.slot_started("idle", StartedGroup(workers=[]))
    assert (await broker.next_assignment("idle", 0)).trial == "0000"
    idle = asyncio.create_task(broker.next_assignment("idle", 1))
    await asyncio.sleep(0.05)
    if is_kept:
        assert await broker.reserve("idle")
    await begin(broker, "0001", "other")
    if is_full and not is_kept:
        assert await idle is None
        assert not await broker.reserve("idle"), "its workers return: the next trial has others"
        return
    await (asyncio.sleep(0.1) if is_kept else looked())
    assert not idle.done()
    await begin(broker, "0002", "idle")
    assert (await idle).trial == "0002"
