"""State machine of an attempt: its phases, requests to stop, and the one end that counts."""

from __future__ import annotations

import asyncio

from sweeps.runtime.attempt import Attempt, Phase, StopRequest
from sweeps.runtime.events import Ended, Event, Log, Report, Saved, Started


def attempt(published: list[Event]) -> Attempt:
    made = Attempt("0003", 2, published.append)
    made.assign("slot-0003-2", "logs")
    return made


def logged(step: int) -> Log:
    return Log("0003", 2, step, {"train/loss": 1.0}, 1000)


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


def test_events_of_a_discarded_attempt_are_dropped() -> None:
    published: list[Event] = []
    made = attempt(published)
    made.post(logged(1), ())
    made.request_stop(StopRequest.DISCARD)
    made.post(logged(2), ())
    assert published == [logged(1)]


def test_the_upload_of_a_checkpoint_belongs_to_its_report_also_after_the_trial_was_stopped_there() -> None:
    published: list[Event] = []
    made = Attempt("0003", 2, published.append, withholds=True)
    reports = [Report("0003", 2, step, {"eval/loss": 1.0}, 1000) for step in (10, 20)]
    uploads = [Saved("0003", 2, step, {}, 1000, checkpoint=f"s3://bucket/step-{step}") for step in (10, 20)]
    made.request_report()
    made.post(reports[0], ())
    made.post(uploads[0], ())  # the scheduler has not decided on its report
    made.post(reports[1], ())
    made.post(uploads[1], ())  # of a report that it may never ask for
    assert published == [reports[0], uploads[0]]
    made.request_stop(StopRequest.DISCARD)
    made.post(uploads[0], ())
    made.post(uploads[1], ())
    assert published == [reports[0], uploads[0], uploads[0]]


def test_checkpoints_that_are_saved_before_the_workers_hear_of_their_trials_end_are_announced() -> None:
    published: list[Event] = []
    made = Attempt("0003", 2, published.append, withholds=True)
    made.post(Report("0003", 2, 10, {"loss": 1.0}, 1000), ())
    made.post(Saved("0003", 2, 10, {"loss": 1.0}, 1001, checkpoint="step-10"), ())
    withheld = [Report("0003", 2, 20, {"loss": 0.8}, 1002, checkpoint="step-20", held="held"), logged(25)]
    for event in withheld:
        made.post(event, ())
    assert len(published) == 2
    made.discard()
    made.post(Saved("0003", 2, 30, {"loss": 0.5}, 1003, checkpoint="step-30"), ())
    made.post(logged(31), ())
    assert [type(event) for event in published] == [Report, Saved, Saved, Saved]
    saved = [event for event in published if isinstance(event, Saved)]
    assert [(each.checkpoint, each.held) for each in saved] == [
        ("step-10", None),
        ("step-20", "held"),
        ("step-30", None),
    ]


def test_an_attempt_that_another_one_follows_announces_no_later_checkpoints() -> None:
    published: list[Event] = []
    made = Attempt("0003", 2, published.append, withholds=True)
    made.post(Report("0003", 2, 10, {"loss": 1.0}, 1000), ())
    made.post(Report("0003", 2, 20, {"loss": 0.8}, 1002, checkpoint="step-20"), ())
    made.request_stop(StopRequest.DISCARD)
    made.post(Saved("0003", 2, 30, {"loss": 0.5}, 1003, checkpoint="step-30"), ())
    assert [event.step for event in published if isinstance(event, Report | Saved)] == [10]
