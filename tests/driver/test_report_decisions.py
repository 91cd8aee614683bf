"""Answers to reports: each report is decided on once, and Tune hears of what ends or pauses its trial."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from sweeps.config.objectives import Objectives
from sweeps.config.search import Limit
from sweeps.constants import COMPLETED, LINEAGE, RESTARTED, STEP, TIME_OF_REPORT
from sweeps.driver.report_decisions import Decisions
from sweeps.driver.retries import Retries
from sweeps.driver.trial_status import TrialStatus
from sweeps.errors import TrialFailed
from sweeps.runtime.answers import Answer
from sweeps.runtime.events import Ended, Report, Started
from sweeps.search.schedulers.scheduler import Exploit, Verdict
from sweeps.tracking.trial_history import Span

OBJECTIVES = Objectives(("eval/accuracy",), ("max",), {"system/memory_mib": Limit(max=200.0)})
WHOLE = {"eval/accuracy": 0.5, "system/memory_mib": 100.0, "eval/loss": 1.0}


def state_of(*trials: TrialStatus, max_retries: int = 2, concurrent: int = 1) -> Any:
    """The parts of a sweep's state that decide about retries."""
    config = SimpleNamespace(search=SimpleNamespace(max_retries=max_retries))
    shutdown = SimpleNamespace(interrupts_trials=lambda: False)
    by_id = {each.trial: each for each in trials}
    return SimpleNamespace(
        trials=by_id,
        all_trials=trials,
        composition=SimpleNamespace(config=config),
        shutdown=shutdown,
        concurrent=concurrent,
    )


class Scene:
    def __init__(self, objectives: Objectives = OBJECTIVES) -> None:
        self.broker = MagicMock()
        self.status = TrialStatus("0000", {}, attempt=1, eval_every=10, spans=[Span(held=100.0, trained=101.0)])
        self.state = state_of(self.status)
        self.decisions = Decisions(objectives, Retries(self.state), self.broker)
        self.decided: list[int] = []
        self.seconds: list[float] = []
        self.restarted: list[bool] = []

    def decide(self, verdict: Verdict | Exception, at: int) -> None:
        """Decide so at a step, and let the trial go on before."""

        def decide(trial: str, result: Mapping[str, Any]) -> Verdict | Exploit:
            self.decided.append(result[STEP])
            self.seconds.append(result[TIME_OF_REPORT])
            self.restarted.append(result[RESTARTED])
            if result[STEP] < at:
                return Verdict.CONTINUE
            if isinstance(verdict, Exception):
                raise verdict
            return verdict

        self.decisions.begin(decide)

    def answers(self) -> list[Answer]:
        self.broker.reset_mock()
        self.decisions.send()
        return [each for call in self.broker.answer.call_args_list for each in call.args[0]]

    def report(
        self, step: int, metrics: dict[str, float] = WHOLE, *, attempt: int = 1, done: bool = False, at_s: float = 0.0
    ) -> Answer:
        report = Report("0000", attempt, step, metrics, round(1000 * at_s), done=done)
        self.begins_again = self.decisions.report(self.status, report)
        (answer,) = self.answers()
        return answer


def test_a_trial_goes_on_until_the_scheduler_stops_it() -> None:
    scene = Scene()
    scene.decide(Verdict.STOP, at=20)
    first, second = scene.report(10), scene.report(20)
    assert (first.returns, second.returns, second.stops) == (False, True, True)
    assert (second.result[STEP], second.result["evaluations"], second.result[COMPLETED]) == (20, 2, False)
    assert scene.status.is_pruned


def test_a_result_tells_the_time_since_the_one_before_or_since_its_trial_got_workers_again() -> None:
    scene = Scene()
    scene.decide(Verdict.PAUSE, at=20)
    scene.report(10, at_s=105.0)
    scene.report(20, at_s=109.0)
    scene.decisions.done("0000")
    scene.status.spans.append(Span(held=150.0, trained=152.0))
    scene.report(30, attempt=2, at_s=156.0)
    assert scene.seconds == [5.0, 4.0, 6.0]
    assert scene.restarted == [True, False, True]


def test_a_report_of_a_trial_whose_start_was_lost_is_decided_without_its_time() -> None:
    scene = Scene()
    scene.status.spans.clear()
    scene.decide(Verdict.STOP, at=20)
    assert [scene.report(step, at_s=100.0 + step).returns for step in (10, 20)] == [False, True]
    assert scene.seconds == [0.0, 0.0]


def test_a_report_is_decided_on_once_and_again_after_the_trial_has_taken_over_another_state() -> None:
    scene = Scene()
    scene.decide(Verdict.PAUSE, at=100)
    for step in (10, 20, 20, 10, 30):
        scene.report(step)
    scene.status.lineage = 1
    scene.report(20)
    assert scene.decided == [10, 20, 30, 20]
    assert not scene.decisions.ended(scene.status, Ended("0000", 1))
    assert [(each.result[STEP], each.result[LINEAGE]) for each in scene.answers()] == [(20, 1)]


def test_what_tune_has_not_acted_on_is_told_to_the_next_attempt() -> None:
    scene = Scene()
    scene.decide(Verdict.PAUSE, at=10)
    paused = scene.report(10)
    scene.decisions.started(Started("0000", 2, 0))
    (again,) = scene.answers()
    assert (again.attempt, again.returns, again.result) == (2, True, paused.result)
    assert scene.report(10, attempt=2).returns, "its workers repeat that report"
    scene.decisions.done("0000")
    assert not scene.report(20, attempt=2).returns, "its workers have not noticed yet"
    scene.decisions.started(Started("0000", 3, 0))
    assert scene.answers() == []
    assert not scene.report(10, attempt=3).returns
    assert scene.decided == [10]


def test_a_trial_whose_end_is_decided_may_lose_its_actor_once_more() -> None:
    scene = Scene()
    scene.decide(Verdict.STOP, at=20)
    scene.report(10)
    assert scene.decisions.max_deaths("0000") == 2
    scene.report(20)
    assert scene.decisions.max_deaths("0000") == 3
    scene.decisions.done("0000")
    assert scene.decisions.max_deaths("0000") == 2


@pytest.mark.parametrize("ends", [Verdict.STOP, TrialFailed("it came without a checkpoint"), None])
def test_what_workers_report_before_they_notice_that_their_attempt_is_over_is_not_decided_on(
    ends: Verdict | Exception | None,
) -> None:
    scene = Scene()
    scene.decide(ends or Verdict.CONTINUE, at=10)
    scene.report(10)
    if ends is None:
        assert scene.decisions.ended(scene.status, Ended("0000", 1, "its workers hang"))
        assert [each.tries_again for each in scene.answers()] == [True]
    scene.decisions.done("0000")  # Tune has told the study
    assert scene.report(20) == Answer("0000", 1)
    assert scene.decided == [10]
    scene.report(20, attempt=2)
    assert scene.decided == [10, 20]


def test_an_attempt_that_fails_is_followed_by_others_as_often_as_the_search_allows() -> None:
    scene = Scene()
    for attempt in (1, 2, 3):
        again = scene.decisions.ended(scene.status, Ended("0000", attempt, "its workers hang"))
        assert again is (attempt < 3), "search.max_retries=2"
        scene.status.attempt += again
    ends = [Ended("0000", 4, "a node leaves", moved="a node leaves"), Ended("0000", 5, "no memory", halved_to=4)]
    assert not any(scene.decisions.ended(scene.status, each) for each in ends), "they go on without the driver"
    assert [each.tries_again for each in scene.answers()] == [True, True, False, None, None]


def test_while_trials_are_stopped_a_failed_attempt_is_left_to_the_driver_that_goes_on() -> None:
    scene = Scene()
    scene.state.shutdown.interrupts_trials = lambda: True
    assert not scene.decisions.ended(scene.status, Ended("0000", 1, "its workers hang"))
    assert [each.tries_again for each in scene.answers()] == [None]


def test_an_attempt_that_is_over_when_its_workers_fail_is_not_tried_again() -> None:
    scene = Scene()
    scene.decide(Verdict.PAUSE, at=10)
    scene.report(10)
    assert not scene.decisions.ended(scene.status, Ended("0000", 1, "lost while it saved"))
    scene.status.ending = True
    assert not scene.decisions.ended(scene.status, Ended("0000", 2, "lost while Tune stopped it"))


def test_the_last_report_ends_the_trial_and_is_no_matter_of_the_scheduler() -> None:
    scene = Scene()
    scene.decide(Verdict.STOP, at=0)
    last = scene.report(40, done=True)
    assert (last.returns, last.stops, last.result[COMPLETED], scene.decided) == (True, False, True, [])


def test_the_last_report_stands_if_the_next_attempt_ends_without_another_one() -> None:
    scene = Scene()
    scene.report(20)
    end = scene.report(25, {}, attempt=2, done=True)  # it continued from a checkpoint saved after that report
    assert (end.error, end.returns) == (None, True)
    assert (end.result["eval/accuracy"], end.result[STEP], end.result[COMPLETED]) == (0.5, 25, True)
    later = Scene()
    later.status.has_reported = True  # to an earlier driver
    assert later.report(25, {}, attempt=2, done=True).error is None


def test_a_scheduler_that_cannot_go_on_with_a_trial_fails_it() -> None:
    scene = Scene()
    scene.decide(TrialFailed("it came without a checkpoint"), at=10)
    failed = scene.report(10)
    assert (failed.returns, failed.error) == (True, "it came without a checkpoint")


def test_the_first_report_must_have_every_metric_that_the_search_reads() -> None:
    scene = Scene()
    missing = scene.report(10, {"eval/accuracy": 0.5})
    assert missing.error == "search.limits=system/memory_mib is not among the reported metrics: eval/accuracy"
    assert (missing.tries_again, scene.begins_again) == (False, False), "it comes again"
    assert not scene.status.has_reported
    scene.report(0, {"eval/accuracy": 0.9}, attempt=2)
    assert not scene.status.has_reported, "an evaluation at step 0 is no result"
    assert scene.report(10, attempt=2).error is None
    assert scene.report(20, {"eval/accuracy": 0.6}, attempt=2).error is None
    assert "search.metric=eval/accuracy is not among" in str(scene.report(30, {"eval/loss": 0.6}, attempt=2).error)
    assert scene.begins_again, "it may pass after a report"


def test_a_trial_that_goes_on_may_first_report_what_it_does_not_measure_each_time() -> None:
    scene = Scene()
    scene.status.has_reported = True  # to an earlier driver
    assert scene.report(20, {"eval/accuracy": 0.6}).error is None


@pytest.mark.parametrize("metric", ["seconds", "training_iteration"])
def test_a_metric_with_the_name_of_something_else_is_refused(metric: str) -> None:
    scene = Scene(Objectives((metric,), ("min",)))
    report = Report("0000", 1, 10, {metric: 5.0}, 0, progress={"steps": 10, "seconds": 1.0})
    scene.decisions.report(scene.status, report)
    (answer,) = scene.answers()
    assert f"search.metric={metric} is a name that Sweeps or Ray Tune reserves" in str(answer.error)
