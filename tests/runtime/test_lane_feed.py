"""A slot's main worker takes trials from the broker into lanes, and ends them one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempts import SPEC, Owner, assignment, lost
from local_actor import LOCAL_RAY, LocalActor, event_loop
from training_runs import TEXT, configured
from waiting import wait_until

from sweeps.runtime import broker_sides, lane_feed
from sweeps.runtime import trial_reporter as reporter
from sweeps.runtime.answers import Answer
from sweeps.runtime.broker import Broker
from sweeps.runtime.broker_sides import WorkersSide
from sweeps.runtime.events import Ended
from sweeps.runtime.lane_feed import LaneFeed
from sweeps.runtime.lane_loop import take_fewer_if_out_of_memory
from sweeps.runtime.lane_number import MEASURED, SKIPPED, LaneNumber
from sweeps.runtime.lost_worker import PROCESS_DIED
from sweeps_train.errors import MicroBatchHalved
from sweeps_train.reports.progress import Progress
from sweeps_train.reports.reporter import Stop

SLOT = "slot-0-1-1"
"""Name of the slot that is started for the first attempt of the first trial."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for module in (broker_sides, lane_feed, reporter):
        monkeypatch.setattr(module, "ray", LOCAL_RAY)
    with event_loop() as loop:
        yield LocalActor(Broker(start_group=lambda *_: Owner()), loop)


def begin(broker: Any, folder: Path, *trials: str) -> None:
    for trial in trials:
        begun = LOCAL_RAY.get(broker.begin.remote(trial))
        given = replace(
            assignment(trial, begun.attempt),
            training=configured(TEXT),
            checkpoint_folder=str(folder / trial),
            log_folder=str(folder / trial / "logs"),
            broker=WorkersSide(broker),
        )
        LOCAL_RAY.get(broker.assign_lane.remote(given, SPEC))


def feed_of(broker: Any, slot: str = SLOT) -> LaneFeed:
    return LaneFeed(slot, WorkersSide(broker), 2, "/logs/of/the/group", LaneNumber(16, 16, is_found=True))


def end(broker: Any, trial: str) -> Ended:
    LOCAL_RAY.get(broker.stop_waiting_for_answers.remote())
    ended: Ended = LOCAL_RAY.get(broker.next_outcome.remote(trial, 60.0)).end
    return ended


def test_trials_are_taken_as_lanes_are_free_and_end_one_by_one(broker: Any, tmp_path: Path) -> None:
    begin(broker, tmp_path, "0", "1", "2")
    feed = feed_of(broker)
    first, second = feed.next(2)
    assert feed.has_next()
    feed.ended(first, None)
    assert end(broker, "0").error is None
    (third,) = feed.next(1)
    assert not feed.has_next()
    assert feed.next(1) == []  # the other lanes train on
    feed.ended(second, ValueError("a bad batch"))
    failed = end(broker, "1")
    assert failed.failure is not None
    assert "a bad batch" in str(failed.error)
    assert "a bad batch" in (tmp_path / "1" / "logs" / "worker-0.log").read_text(encoding="utf-8")
    feed.ended(third, MicroBatchHalved(8, 4))
    assert end(broker, "2").halved_to == 4
    LOCAL_RAY.get(broker.close_slot.remote(SLOT))
    assert feed.next(2) == []


def test_each_lane_is_asked_to_stop_for_itself(broker: Any, tmp_path: Path) -> None:
    begin(broker, tmp_path, "0", "1")
    feed = feed_of(broker)
    first, second = feed.next(2)
    assert first.reporter is not None
    assert second.reporter is not None
    LOCAL_RAY.get(broker.stop.remote("1"))
    while second.reporter.should_stop() is Stop.NO:
        pass
    assert first.reporter.should_stop() is Stop.NO
    first.reporter.report(Progress(step=4), {"eval/loss": 2.0}, None, True)
    for each in (first, second):
        feed.ended(each, None)
    LOCAL_RAY.get(broker.answer.remote([Answer("0", 1, {"step": 4}, returns=True)]))
    assert LOCAL_RAY.get(broker.next_outcome.remote("0", 60.0)).result["step"] == 4
    assert "shares them with other trials" in (tmp_path / "0" / "logs" / "worker-0.log").read_text(encoding="utf-8")


def test_a_trial_that_cannot_begin_fails_alone(broker: Any, tmp_path: Path) -> None:
    begin(broker, tmp_path, "0", "1")
    (tmp_path / "0").write_text("a file where its folder should be", encoding="utf-8")
    feed = feed_of(broker)
    (only,) = feed.next(2)
    assert only.checkpoint_folder == str(tmp_path / "1")
    feed.ended(only, None)
    assert end(broker, "0").error is not None


def test_trials_of_a_lost_group_train_alone_until_their_next_reports_and_then_together(
    broker: Any, tmp_path: Path
) -> None:
    begin(broker, tmp_path, "0", "1")
    dying = feed_of(broker)
    requests = dying.next(2)
    LOCAL_RAY.get(broker.slot_ended.remote(SLOT, "worker 1 was lost", (lost(PROCESS_DIED),)))
    for each in requests:
        dying.ended(each, None)  # too late
    begin(broker, tmp_path, "0", "1")
    feed = feed_of(broker, "slot-0-2-2")
    (first,) = feed.next(2)
    assert not feed.has_next()
    assert feed.next(1) == []
    assert first.reporter is not None
    first.reporter.report(Progress(step=4), {"eval/loss": 2.0}, None, False)
    wait_until(lambda: first.reporter is not None and first.reporter.should_stop() is Stop.SAVE, 20)
    feed.ended(first, None)
    assert "another trial must train alone" in str(end(broker, "0").moved)
    begin(broker, tmp_path, "0")
    (second,) = feed.next(2)
    assert second.checkpoint_folder == str(tmp_path / "1")
    assert not feed.has_next()
    assert second.reporter is not None
    second.reporter.report(Progress(step=4), {"eval/loss": 2.0}, None, False)
    wait_until(feed.has_next, 20)
    (third,) = feed.next(1)
    assert second.reporter.should_stop() is Stop.NO
    for each in (second, third):
        feed.ended(each, None)


def test_trials_wait_while_more_lanes_are_not_known_to_train_more(broker: Any, tmp_path: Path) -> None:
    begin(broker, tmp_path, "0", "1", "2")
    feed = LaneFeed(SLOT, WorkersSide(broker), 2, "/logs/of/the/group", LaneNumber(2))
    requests = [*feed.next(2)]
    assert len(requests) == 1
    assert feed.measures
    assert not feed.has_next()
    for _ in range(SKIPPED + MEASURED):
        feed.stepped(1, 2, 1.0)
    assert LOCAL_RAY.get(broker.lanes.remote()) == (2, None)
    assert feed.has_next()
    requests += feed.next(1)
    assert len(requests) == 2
    for _ in range(SKIPPED + MEASURED):
        feed.stepped(2, 4, 2.0)
    assert LOCAL_RAY.get(broker.lanes.remote()) == (1, "1 trains 2; 2 train 2 tokens a second")
    assert not feed.has_next()
    assert not feed.measures
    for each in requests:
        feed.ended(each, None)


def test_trials_that_cannot_share_train_one_at_a_time_if_the_number_is_found_while_training(
    broker: Any, tmp_path: Path
) -> None:
    begin(broker, tmp_path, "0", "1")
    assert not feed_of(broker).trains_alone("16 were asked for")
    assert LOCAL_RAY.get(broker.lanes.remote()) == (1, None)
    feed = LaneFeed(SLOT, WorkersSide(broker), 2, "/logs/of/the/group", LaneNumber(4))
    (first,) = feed.next(4)
    assert feed.trains_alone("its model draws random numbers")
    assert LOCAL_RAY.get(broker.lanes.remote()) == (1, "its model draws random numbers")
    assert not feed.measures
    assert not feed.has_next()
    feed.ended(first, None)
    (second,) = feed.next(1)
    feed.ended(second, None)
    # Workers that start later learn the same by their own first trial.
    assert LaneFeed(SLOT, WorkersSide(broker), 2, "/logs", LaneNumber(4, 1, is_found=True)).trains_alone("again")


def test_a_worker_of_any_rank_that_runs_out_of_memory_ends_the_search_for_the_number_of_trials_at_half(
    broker: Any,
) -> None:
    import torch

    full, lanes = torch.OutOfMemoryError("CUDA out of memory"), WorkersSide(broker)
    take_fewer_if_out_of_memory(full, 1, lanes)
    assert lanes.lanes() == (1, None), "one trial at a time is the least"
    LOCAL_RAY.get(broker.set_lanes.remote(4, None))
    take_fewer_if_out_of_memory(OSError("a full disk"), 1, lanes)
    assert lanes.lanes() == (4, None)
    for rank in (1, 0):  # the second is told too late
        take_fewer_if_out_of_memory(full, rank, lanes)
    assert lanes.lanes() == (2, "4 do not fit into the memory of worker 1")


def test_a_group_takes_the_number_of_trials_that_another_one_has_found(broker: Any, tmp_path: Path) -> None:
    begin(broker, tmp_path, "0", "1", "2")
    feed = LaneFeed(SLOT, WorkersSide(broker), 2, "/logs/of/the/group", LaneNumber(4))
    requests = [*feed.next(4)]
    LOCAL_RAY.get(broker.set_lanes.remote(2, "1 trains 2; 2 train 4; 4 train 4 tokens a second"))
    for _ in range(SKIPPED + MEASURED):
        feed.stepped(1, 2, 1.0)
    assert feed.has_next()
    requests += feed.next(3)
    assert len(requests) == 2
    for _ in range(SKIPPED + MEASURED):
        feed.stepped(2, 2, 1.0)  # no gain here
    assert not feed.has_next()  # it keeps to 2, for as many trials are started
    feed.ended(requests.pop(0), None)
    assert feed.has_next()
    requests += feed.next(1)
    for each in requests:
        feed.ended(each, None)
