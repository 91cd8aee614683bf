"""Which slot with lanes a trial is given to, and what becomes of its trials when it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from attempts import SPEC, Owner, assignment, die_for_good, end_of, lost, session_of

from sweeps.runtime import attempt, hang, slot_queue
from sweeps.runtime.attempt import StopRequest
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended, Log, Note, Report
from sweeps.runtime.lane_assignment import MOST_EXCUSES
from sweeps.runtime.lost_worker import NODE_DIED, PROCESS_DIED
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.worker_group_spec import Lanes, WorkerGroupSpec
from sweeps.worker_error import WorkerError

pytestmark = pytest.mark.anyio

ON_ANOTHER_BASE = replace(SPEC, lanes=Lanes(2, False, "", None, 1.0, base=("another model",)))
ON_MORE_WORKERS = replace(SPEC, workers=replace(SPEC.workers, number=4))


class Groups:
    """A broker whose worker groups are not there, so that this test takes their trials and ends them."""

    def __init__(self, most: int = 1) -> None:
        self.owners: dict[str, Owner] = {}
        self.broker = Broker(start_group=self._start)
        self._most = most

    def _start(self, slot: str, spec: WorkerGroupSpec) -> Owner:
        assert spec in (SPEC, ON_ANOTHER_BASE, ON_MORE_WORKERS)
        self.owners[slot] = Owner()
        return self.owners[slot]

    async def begin(self, *trials: str, is_answered: bool = False, spec: WorkerGroupSpec = SPEC) -> None:
        """Give trials to lanes."""
        await self.broker.set_groups(self._most)
        if not is_answered:
            await self.broker.stop_waiting_for_answers()
        for trial in trials:
            begun = await self.broker.begin(trial)
            await self.broker.assign_lane(assignment(trial, begun.attempt), spec)

    async def take(self, slot: str, most: int = 2) -> list[str]:
        """Trials that a slot's main worker takes into lanes."""
        return [each.trial for each in await self.broker.take_trials(slot, most)]

    async def end(self, trial: str) -> Ended:
        """The end that a trial's actor hears."""
        return await end_of(self.broker.next_outcome(trial, 60))


async def training(*trials: str, is_answered: bool = False) -> tuple[Groups, str]:
    """One group, whose main worker has taken the first trials into its two lanes; and its slot."""
    groups = Groups()
    await groups.begin(*trials, is_answered=is_answered)
    (slot,) = groups.owners
    await groups.take(slot)
    return groups, slot


async def test_trials_go_to_a_new_group_while_there_is_room_and_then_to_the_one_with_the_fewest() -> None:
    groups = Groups(most=2)
    await groups.begin("0", "1", "2", "3", "4")
    first, second = groups.owners
    assert await groups.take(first) == ["0", "2"]
    assert await groups.take(second) == ["1", "3"]
    assert await groups.take(first) == ["4"]
    await groups.broker.lane_ended(second, Ended("1", 1))
    await groups.begin("5")
    assert await groups.take(second) == ["5"]


@pytest.mark.parametrize("has_trained", [True, False])
async def test_a_group_without_a_trial_ends_when_the_search_is_over(
    monkeypatch: pytest.MonkeyPatch, has_trained: bool
) -> None:
    monkeypatch.setattr(slot_queue, "IDLE_S", 0.0)

    groups = Groups()
    await groups.begin("0")
    (slot,) = groups.owners
    await groups.broker.search_over(True)
    if has_trained:
        assert await groups.broker.wait_for_trial(slot)
        await groups.take(slot)
        await groups.broker.lane_ended(slot, Ended("0", 1))
    else:
        await groups.broker.stop_for_good("0")
    assert not await asyncio.wait_for(groups.broker.wait_for_trial(slot, is_idle=True), 5)


@pytest.mark.parametrize("spec", [ON_ANOTHER_BASE, ON_MORE_WORKERS])
async def test_trials_on_another_base_or_more_workers_do_not_get_into_the_lanes_of_a_group(
    spec: WorkerGroupSpec,
) -> None:
    groups, slot = await training("s1-0000")
    await groups.broker.lane_ended(slot, Ended("s1-0000", 1))
    waits = asyncio.create_task(groups.broker.wait_for_trial(slot, is_idle=True))
    await groups.begin("0000", spec=spec)
    _, other = groups.owners
    assert await groups.take(other) == ["0000"]
    assert not await asyncio.wait_for(waits, 5)


async def test_the_death_of_a_group_fails_the_trials_in_its_lanes_once_and_moves_those_that_wait() -> None:
    groups, slot = await training("0", "1", "2")
    await groups.broker.slot_ended(slot, "worker 1 was lost", ())
    for trial in ("0", "1"):
        assert (await groups.end(trial)).error == "worker 1 was lost"
    _, again = groups.owners
    assert await groups.take(again) == ["2"]
    await groups.begin("0", "1")  # the next attempts
    assert [(each.trial, each.failures) for each in await groups.broker.take_trials(again, 2)] == [
        ("0", 1),
        ("1", 1),
    ]


async def test_a_trial_that_kills_its_workers_fails_alone_after_its_own_retries() -> None:
    groups, last, most = Groups(), "3", 4
    steps, failures = dict.fromkeys(("0", "1", last, "4"), 0), Counter[str]()
    await groups.begin(*steps)
    ended, lanes = set[str](), set[str]()
    while len(ended) < len(steps):
        slot = [*groups.owners][-1]
        if not lanes:
            assert await asyncio.wait_for(groups.broker.wait_for_trial(slot), 5)
        lanes |= {*await groups.take(slot, most - len(lanes))}
        leave = lanes
        if last in lanes:
            await groups.broker.slot_ended(slot, "worker 1 on a was lost", (lost(PROCESS_DIED),))
        else:
            for trial in lanes:
                steps[trial] += 10
                number = groups.broker._attempts[trial].number
                done = steps[trial] == 40
                await groups.broker.post(Report(trial, number, steps[trial], {"eval/loss": 1.0}, 1000, done=done))
            leave = {trial for trial in lanes if groups.broker._attempts[trial].end or steps[trial] == 40}
            leave |= {trial for trial in lanes if groups.broker._attempts[trial].stop >= StopRequest.SAVE}
            for trial in leave:
                await groups.broker.lane_ended(slot, Ended(trial, groups.broker._attempts[trial].number))
        for trial in sorted(leave):
            end = await groups.end(trial)
            failures[trial] += end.is_failure
            if failures[trial] == 2 or (steps[trial] == 40 and end.moved is None):
                ended.add(trial)
            else:
                await groups.begin(trial)
        lanes = lanes - leave
    assert failures == Counter({last: 2})
    assert len(groups.owners) == 4, "one at first, after the first death, and after each attempt of the trial alone"


@pytest.mark.parametrize(("reason", "is_failure"), [(PROCESS_DIED, False), (NODE_DIED, True)])
async def test_the_death_of_a_worker_of_several_trials_is_a_failure_of_none_and_that_of_a_node_of_each(
    reason: str, is_failure: bool
) -> None:
    groups, slot = await training("0", "1")
    await groups.broker.slot_ended(slot, "worker 1 on a was lost", (lost(reason),))
    ends = [await groups.end(trial) for trial in ("0", "1")]
    assert {(end.is_failure, reason in str(end.error)) for end in ends} == {(is_failure, True)}
    await groups.begin("0", "1")
    *_, again = groups.owners
    assert len(await groups.take(again)) == (2 if is_failure else 1)


async def report(groups: Groups, trial: str, step: int, *, done: bool = False) -> None:
    """Report an evaluation of a trial; one that was asked to stop leaves its lane."""
    current = groups.broker._attempts[trial]
    await groups.broker.post(Report(trial, current.number, step, {"eval/loss": 1.0}, 1000, done=done))
    if done or current.stop >= StopRequest.SAVE:
        await groups.broker.lane_ended(current.slot, Ended(trial, current.number))
        await groups.end(trial)


async def killed(groups: Groups, slot: str, *trials: str) -> tuple[str, list[Ended]]:
    """The newest group after the death of one whose lanes have these trials, and how these have ended."""
    await groups.broker.slot_ended(slot, "worker 1 on a was lost", (lost(PROCESS_DIED),))
    ends = [await groups.end(trial) for trial in trials]
    return [*groups.owners][-1], ends


async def test_trials_that_die_only_together_fail_in_the_end() -> None:
    groups, slot = await training("0", "1")
    for step in range(10, 10 * MOST_EXCUSES + 1, 10):
        _, ends = await killed(groups, slot, "0", "1")
        assert not any(end.is_failure for end in ends)
        await groups.begin("0", "1")
        *_, slot = groups.owners
        for trial in ("0", "1"):
            assert await groups.take(slot) == [trial]
            await report(groups, trial, step)
        await groups.begin("0")
        assert await groups.take(slot, 1) == ["0"]
    _, ends = await killed(groups, slot, "0", "1")
    assert [(end.is_failure, PROCESS_DIED in str(end.error)) for end in ends] == [(True, True)] * 2


async def test_others_make_room_at_their_next_report_for_a_trial_that_must_train_alone_until_its_own() -> None:
    groups, slot = await training("0", "1", "2")
    slot, _ = await killed(groups, slot, "0", "1")
    assert await groups.take(slot) == ["2"]
    await groups.begin("0")
    assert await groups.take(slot, 1) == []
    await report(groups, "2", 10)
    assert await groups.take(slot) == ["0"]
    await report(groups, "0", 10, done=True)
    await groups.begin("2", "0")  # it is trained for more steps
    assert await groups.take(slot) == ["2", "0"]


async def test_a_trial_that_must_train_alone_keeps_no_other_from_the_lanes_once_it_has_stopped() -> None:
    groups, slot = await training("0", "1", "2")
    slot, _ = await killed(groups, slot, "0", "1")
    assert await groups.take(slot) == ["2"]
    await groups.begin("0", "3")
    waits = asyncio.create_task(groups.broker.wait_for_trial(slot))
    await asyncio.sleep(0.01)
    assert not waits.done()
    await groups.broker.stop("0")
    assert await asyncio.wait_for(waits, 5)
    assert await groups.take(slot, 1) == ["3"]


async def test_a_trial_that_must_train_alone_goes_to_a_group_without_trials() -> None:
    groups = Groups(most=2)
    await groups.begin("0", "1", "2")
    first, second = groups.owners
    assert await groups.take(first) == ["0", "2"]
    assert await groups.take(second) == ["1"]
    await killed(groups, first, "0", "2")
    await groups.begin("0")
    await groups.broker.lane_ended(second, Ended("1", 1))
    await groups.begin("2")
    assert await groups.take(second) == ["2"]


async def test_trials_that_trained_alone_share_their_own_workers_again_and_not_those_whose_lanes_are_taken() -> None:
    groups = Groups(most=2)
    await groups.begin("0", "1", "2", "3")
    first, second = groups.owners
    assert [await groups.take(slot) for slot in (first, second)] == [["0", "2"], ["1", "3"]]
    await killed(groups, second, "1", "3")
    await groups.begin("1", "3")
    *_, again = groups.owners
    for trial in ("1", "3"):
        assert await groups.take(again) == [trial]
        await report(groups, trial, 10)
        if trial == "1":  # it has left its lane for the other one
            await groups.begin("1")
    assert await groups.take(again, 1) == ["1"]


async def test_trials_that_die_as_they_are_leaving_their_lanes_have_not_failed() -> None:
    groups, slot = await training("0", "1")
    await groups.broker.stop("0")
    _, (stopped, other) = await killed(groups, slot, "0", "1")
    assert (stopped.error, stopped.moved) == (None, None)
    assert other.moved is not None


async def test_trials_whose_workers_die_after_sigterm_go_on_together() -> None:
    groups, slot = await training("0", "1")
    await groups.broker.worker_terminated(slot, 0)
    _, ends = await killed(groups, slot, "0", "1")
    assert ["SIGTERM" in str(end.moved) for end in ends] == [True, True]
    await groups.begin("0", "1")
    assert await groups.take([*groups.owners][-1]) == ["0", "1"]


async def test_a_trial_that_ends_with_its_group_while_it_is_asked_for_its_stacks_has_not_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups, slot = await training("0", "1")
    await log(groups, "0", times=1, every_s=0.0)

    async def diagnosed(*_: Any) -> WorkerError:
        await groups.broker.stop("0")
        await groups.broker._end_group(slot, "trial 1, which shares its workers, did not stop")
        return lost(PROCESS_DIED)

    monkeypatch.setattr(hang, "diagnose_hang", diagnosed)
    await groups.broker.slot_started(slot, StartedGroup(processes=[("n", 1)], locations=("a",)))
    monkeypatch.setattr(hang, "flight_records", lambda _: asyncio.sleep(0, ()))
    await end_of(groups.broker.next_outcome("0", 0.1))
    events = await groups.broker.drain(0.1)
    assert [event for event in events if isinstance(event, Note) and event.trial == "0"] == []


@pytest.mark.parametrize("trials", [("0",), ("0", "1")])
async def test_the_death_of_the_process_that_owns_a_group_fails_its_only_trial_and_none_of_several(
    trials: tuple[str, ...],
) -> None:
    groups, slot = await training(*trials)
    groups.owners[slot].dies.set()
    for trial in trials:
        end = await groups.end(trial)
        assert "was lost" in str(end.error)
        assert (end.is_failure, end.moved is None) == (len(trials) == 1,) * 2


async def test_trials_fail_with_a_group_that_does_not_start() -> None:
    groups = Groups()
    await groups.begin("0")
    (slot,) = groups.owners
    await groups.broker.slot_ended(slot, "no worker starts", ())
    assert (await groups.end("0")).error == "no worker starts"
    assert len(groups.owners) == 1


async def test_a_trial_that_waits_for_a_lane_stops_at_once_and_so_do_all() -> None:
    groups, slot = await training("0", "1", "2", "3")
    await groups.broker.stop_for_good("2")
    assert (await groups.end("2")).error is None
    await groups.broker.stop_all()
    assert (await groups.end("3")).error is None
    assert await groups.take(slot) == []


@pytest.mark.parametrize("how", ["announced", "SIGTERM"])
async def test_a_trial_that_waits_for_a_lane_of_workers_that_will_end_moves_at_once(how: str) -> None:
    groups = Groups()
    await groups.begin("0", "1", "2")
    (slot,) = groups.owners
    await groups.broker.slot_started(slot, StartedGroup(processes=[("n1", 1), ("n1", 2)], locations=("a", "a")))
    await groups.take(slot)
    if how == "SIGTERM":
        await groups.broker.worker_terminated(slot, 0)
    else:
        await groups.broker.nodes_leave({"n1": "leaves the cluster"})
    assert (await groups.end("2")).moved is not None
    assert await groups.take(slot) == [], "they have to save the others"


async def test_a_trial_that_waits_for_a_lane_while_others_train_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "START_WITHIN_S", 0.1)

    groups, slot = await training("0", "1", "2")
    report = asyncio.create_task(groups.broker.next_outcome("2", 0.1))
    await asyncio.sleep(0.5)
    assert not report.done()
    await groups.broker.lane_ended(slot, Ended("0", 1))
    assert await groups.take(slot, 1) == ["2"]
    await groups.broker.lane_ended(slot, Ended("2", 1))
    end = await end_of(report)
    assert end == Ended("2", 1, timestamp_ms=end.timestamp_ms)


@pytest.mark.parametrize("has_trained", [False, True])
async def test_a_trial_that_no_lane_takes_hangs_and_is_tried_again_with_new_workers(
    monkeypatch: pytest.MonkeyPatch, has_trained: bool
) -> None:
    monkeypatch.setattr(attempt, "START_WITHIN_S", 0.1)
    groups = Groups()
    await groups.begin("0")
    (slot,) = groups.owners
    if has_trained:
        await groups.take(slot)
        await groups.broker.lane_ended(slot, Ended("0", 1))
    await groups.begin("1", "2")
    assert "its workers do not start" in str((await end_of(groups.broker.next_outcome("1", 0.1))).error)
    await groups.broker.leave_lane("1", 1, 60.0)
    assert groups.owners[slot].is_closed
    assert (await groups.end("2")).moved is not None
    await groups.begin("1", "2")
    _, again = groups.owners
    assert await groups.take(again) == ["1", "2"]


async def test_a_lane_that_does_not_stop_ends_its_group_and_the_others_go_on_without_a_failure() -> None:
    groups, slot = await training("0", "1")
    await groups.broker.post(Report("1", 1, 4, {"eval/loss": 1.0}, 1000))
    await groups.broker.leave_lane("0", 1, 0.01)
    assert groups.owners[slot].is_closed
    end = await groups.end("1")
    assert end.moved is not None
    assert "trial 0" in end.moved
    await groups.begin("1")
    _, again = groups.owners
    assert [(each.trial, each.failures) for each in await groups.broker.take_trials(again, 1)] == [("1", 0)]


async def log(groups: Groups, trial: str, times: int, every_s: float) -> None:
    """Log steps of a trial."""
    for step in range(times):
        await asyncio.sleep(every_s)
        await groups.broker.post(Log(trial, 1, step, {"train/loss": 1.0}, 1000))


async def test_a_lane_has_time_to_stop_while_its_workers_evaluate_others() -> None:
    groups, slot = await training("0", "1")
    leaving = asyncio.create_task(groups.broker.leave_lane("0", 1, 0.2))
    await log(groups, "1", times=6, every_s=0.1)
    assert not leaving.done()
    await groups.broker.lane_ended(slot, Ended("0", 1))
    await leaving
    assert not groups.owners[slot].is_closed


async def test_a_lane_does_not_hang_while_its_workers_evaluate_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "START_WITHIN_S", 0.2)
    groups, _ = await training("0", "1")
    await log(groups, "0", times=1, every_s=0.0)
    waits = asyncio.create_task(groups.broker.next_outcome("0", 0.2))
    await log(groups, "1", times=6, every_s=0.1)
    assert not waits.done()
    end = await end_of(waits)  # now all are silent
    assert "its workers hang" in str(end.error)
    assert not end.is_failure, "the other one may be the cause"


async def test_a_lane_does_not_hang_while_its_workers_wait_for_a_decision_about_another_one() -> None:
    groups, _ = await training("0", "1", is_answered=True)
    await log(groups, "0", times=1, every_s=0.0)
    await groups.broker.post(Report("1", 1, 4, {"eval/loss": 1.0}, 1000))
    waits = asyncio.create_task(groups.broker.next_outcome("0", 0.1))
    await asyncio.sleep(0.5)
    assert [event for event in await groups.broker.drain(0.1) if isinstance(event, Ended)] == []
    waits.cancel()


async def test_two_trials_that_leave_a_group_that_does_not_stop_have_not_failed() -> None:
    groups, _ = await training("0", "1")
    paused = asyncio.create_task(groups.broker.leave_lane("1", 1, 60.0))
    await groups.broker.leave_lane("0", 1, 0.01)
    await paused
    for trial in ("0", "1"):
        end = await groups.end(trial)
        assert (end.error, end.moved) == (None, None)


async def test_a_trial_whose_actor_has_died_leaves_its_lane_before_it_begins_again() -> None:
    groups, slot = await training("0", "1", "2")
    begins = asyncio.create_task(groups.begin("0"))
    assert await groups.broker.wait_for_stop("0", 1) is StopRequest.DISCARD
    await asyncio.sleep(0.05)
    assert not begins.done(), "both attempts would save into one folder"
    await groups.broker.lane_ended(slot, Ended("0", 1))
    await begins
    await groups.begin("2")
    taken = [(each.trial, each.attempt) for each in await groups.broker.take_trials(slot, 2)]
    assert taken == [("0", 2), ("2", 2)], "an attempt that waited for a lane is not trained"


async def test_a_trial_that_waited_for_a_lane_of_a_lost_group_has_neither_its_errors_nor_its_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "START_WITHIN_S", 0.5)

    groups, slot = await training("0", "1", "2")
    waits = asyncio.create_task(groups.broker.next_outcome("2", 0.1, start_timeout_s=0.5))
    await asyncio.sleep(0.7)  # more than workers may take to start
    await groups.broker.worker_of_slot_failed(slot, lost(PROCESS_DIED))
    await groups.broker.slot_ended(slot, "worker 1 was lost", ())
    _, again = groups.owners
    await asyncio.sleep(0.3)
    assert not waits.done(), "the workers of the new group are starting"
    assert await groups.take(again) == ["2"]
    await groups.broker.lane_ended(again, Ended("2", 1, "a batch cannot be read"))
    assert (await end_of(waits)).error == "a batch cannot be read"


async def test_trials_of_a_group_that_takes_no_others_move_too_when_a_worker_receives_sigterm() -> None:
    groups, slot = await training("0")
    await groups.broker.close_slot(slot)  # as when one of its nodes is to be avoided
    await groups.broker.worker_terminated(slot, 0)
    assert await groups.broker.wait_for_stop("0", 1) is StopRequest.SAVE
    await groups.broker.lane_ended(slot, Ended("0", 1))
    assert "has received SIGTERM" in str((await groups.end("0")).moved)


async def test_trials_do_not_wait_for_a_group_that_lost_its_room_while_others_have_lanes() -> None:
    groups = Groups(most=2)
    await groups.begin("0", "1", "2", "3")
    first, second = groups.owners
    for slot in (first, second):
        await groups.broker.slot_started(slot, StartedGroup(workers=["a worker"]))
        await groups.take(slot)
    await groups.broker.slot_ended(second, "its node is gone", ())
    await groups.begin("1", "3")  # again, before the driver has seen the nodes
    *_, third = groups.owners
    assert third not in (first, second)
    await groups.broker.set_groups(1)
    await groups.broker.lane_ended(first, Ended("0", 1))
    await groups.broker.lane_ended(first, Ended("2", 1))
    assert await groups.take(first) == ["1", "3"]
    await asyncio.sleep(0.05)
    assert [groups.owners[each].is_closed for each in (first, third)] == [False, True]
    ends = [event for event in await groups.broker.drain(0.1) if isinstance(event, Ended) and event.attempt == 2]
    assert ends == []


async def test_trials_that_wait_for_a_lane_go_to_a_new_group_once_there_is_room_for_one() -> None:
    groups, first = await training("0", "1", "2", "3", "4")
    await groups.broker.set_groups(3)
    _, second, third = groups.owners
    assert [await groups.take(slot) for slot in (first, second, third)] == [[], ["2", "4"], ["3"]]


async def test_a_trial_whose_actor_has_died_for_good_leaves_its_lane() -> None:
    groups, asked = Groups(), list[Any]()
    await groups.begin("0", "1", "2")
    (slot,) = groups.owners
    assert await groups.take(slot) == ["0", "1"]
    ends: list[str] = []
    session = session_of(lanes=2, ends=ends, stop=lambda trial: asked.append(groups.broker.stop(trial)))
    die_for_good(session, "0", "2")
    await asyncio.gather(*asked)
    assert ends == ["The actor died", "The actor died"]
    assert await groups.broker.wait_for_stop("0", 1) is StopRequest.SAVE, "its workers hear it"
    assert (await groups.end("2")).error is None, "it no longer waits for a lane"
    assert await groups.take(slot) == []
