"""State machine of an attempt: its phases, requests to stop, and the one end that counts."""

from __future__ import annotations

import asyncio
import math

import pytest

from sweeps.runtime.answers import Answer, Outcome
from sweeps.runtime.attempt import Attempt, Phase, StopRequest
from sweeps.runtime.events import Ended, Event, Report, Started

pytestmark = pytest.mark.anyio


def attempt(published: list[Event]) -> Attempt:
    made = Attempt("0003", 2, published.append)
    made.assign("slot-0003-2", "logs")
    return made


def test_an_attempt_starts_trains_and_ends_when_all_its_workers_have_finished() -> None:
    published: list[Event] = []
    made = attempt(published)
    assert made.phase is Phase.STARTING
    made.post(Started("0003", 2, 1000), ("a", "b"))
    assert made.phase is Phase.TRAINING
    made.worker_finished(1, 2, 20.0)
    assert made.phase is Phase.TRAINING
    made.worker_finished(0, 2, 10.0, 35)
    assert made.phase is Phase.ENDED
    started, ended = published
    assert isinstance(started, Started)
    assert started.workers == ("a", "b")
    assert started.assigned_ms > 0
    assert isinstance(ended, Ended)
    assert (ended.error, ended.saved_step, ended.memory_mib) == (None, 35, (10.0, 20.0))
    assert asyncio.run(made.wait_for_end(1)) == ended


def test_who_must_end_soon_does_not_wait_for_workers_that_are_often_silent() -> None:
    made = attempt([])
    made._silence.longest_s = 600.0
    assert asyncio.run(made.wait_for_end(0, is_patient=False)) is None


def test_only_the_first_end_counts() -> None:
    published: list[Event] = []
    made = attempt(published)
    first = made.finish(Ended("0003", 2, "the first error"))
    assert made.finish(Ended("0003", 2, "a later one")) == first
    assert published == [first]


def test_a_request_to_stop_only_grows_and_the_end_implies_one() -> None:
    made = attempt([])
    assert made.stop is StopRequest.NONE
    made.request_stop(StopRequest.DISCARD)
    made.request_stop(StopRequest.SAVE)
    assert made.stop is StopRequest.DISCARD
    ended = attempt([])
    ended.finish(Ended("0003", 2))
    assert asyncio.run(ended.wait_for_stop()) is StopRequest.SAVE


def test_a_training_that_cannot_save_when_asked_changes_its_workers_at_its_next_checkpoint() -> None:
    made = Attempt("0003", 2, [].append, saves_when_asked=False)
    for step in (1, 2):
        made.post(Report("0003", 2, step, {"loss": 1.0}, 1000 * step), ())
    assert not made.may_change_workers, "it would begin again"
    made.post(Report("0003", 2, 3, {"loss": 1.0}, 3000, checkpoint="/step-3"), ())
    assert made.may_change_workers
    made.move("it changes its workers", in_time=False)
    assert asyncio.run(made.wait_for_stop()) is StopRequest.AT_CHECKPOINT
    assert not made.may_change_workers
    made.move("its node leaves")
    assert asyncio.run(made.wait_for_stop(StopRequest.AT_CHECKPOINT)) is StopRequest.SAVE
    assert made.finish(Ended("0003", 2)).moved == "its node leaves"
    saves = attempt([])
    saves.move("it changes its workers", in_time=False)
    assert asyncio.run(saves.wait_for_stop()) is StopRequest.SAVE


def reported(step: int) -> Report:
    return Report("0003", 2, step, {"eval/loss": 1.0}, 1000)


async def outcome(made: Attempt) -> Outcome | None:
    """The next outcome for the trial's actor; None if there is none now."""
    try:
        return await made.next_outcome(0.05)
    except TimeoutError:
        return None


async def test_an_actor_hears_of_the_end_when_the_driver_has_recorded_it() -> None:
    made = attempt([])
    for step in (10, 20):
        made.post(reported(step), ())
    made.finish(Ended("0003", 2))

    heard = []
    for step in (10, 20, 20):  # the last answer is to the end
        heard.append(await outcome(made))
        made.answer(Answer("0003", 2, {"step": step}))
    assert [*heard, await outcome(made)] == [None, None, None, Outcome({"step": 20}, made.end)]


async def test_what_was_decided_at_a_report_is_heard_before_the_end_of_workers_that_fail_after_it() -> None:
    made = attempt([])
    made.post(reported(10), ())
    made.finish(Ended("0003", 2, "a worker was lost"))
    made.answer(Answer("0003", 2, {"step": 10}, returns=True, stops=True))
    assert made.stop is StopRequest.DISCARD
    assert await outcome(made) == Outcome({"step": 10})


@pytest.mark.parametrize(
    ("answer", "stop"),
    [
        (Answer("0003", 2), StopRequest.NONE),
        (Answer("0003", 2, returns=True), StopRequest.SAVE),  # it is paused
        (Answer("0003", 2, returns=True, stops=True), StopRequest.DISCARD),
    ],
)
async def test_workers_wait_for_the_decision_whether_they_go_on_or_leave(answer: Answer, stop: StopRequest) -> None:
    made = attempt([])
    made.post(reported(10), ())
    waiting = asyncio.create_task(made.wait_for_decision())
    await asyncio.sleep(0.02)
    assert not waiting.done()
    assert made.silence(0.001)[1] == math.inf, "they are silent because they wait"
    made.answer(answer)
    await asyncio.wait_for(waiting, 1)
    assert made.stop is stop


async def test_a_driver_that_records_nothing_further_holds_no_trial() -> None:
    made = attempt([])
    made.post(reported(10), ())
    made.stop_waiting_for_answers()
    made.post(reported(20), ())
    end = made.finish(Ended("0003", 2))

    await asyncio.wait_for(made.wait_for_decision(), 1)
    assert await outcome(made) == Outcome({}, end)


def test_answers_that_were_lost_are_not_waited_for_so_that_silence_counts_again() -> None:
    made = attempt([])
    made.post(Started("0003", 2, 1000), ())
    made.post(Report("0003", 2, 10, {"loss": 1.0}, 1000), ())
    assert made.silence(60) == (0.0, math.inf)
    made.cut_off(1, "cut off")
    assert made.silence(60) == (0.0, math.inf), "the driver will take that report, and answer"
    made.cut_off(0, "cut off")
    assert made.silence(60)[1] < math.inf


async def test_the_answer_to_an_end_counts_and_not_that_to_a_report_which_came_later() -> None:
    made = attempt([])
    end = made.finish(Ended("0003", 2, "its workers hang"))
    made.post(reported(10), ())  # they had not hung
    made.answer(Answer("0003", 2, tries_again=True))
    made.answer(Answer("0003", 2))
    assert await outcome(made) == Outcome({}, end, tries_again=True)
