"""A driver's session, with the events of workers that come early or late."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, call

import pytest
import ray
from composing import composed_digits
from mlflow import MlflowClient
from recording import open_recorder
from waiting import wait_until

from sweeps.config.space import FloatDistribution
from sweeps.constants import COMPLETED, FAILED, LAST_DELIVERED, MAY_PAUSE, PARAMETERS, STEP, STOPPED, TRIAL
from sweeps.driver.early_end import Shutdown
from sweeps.driver.reconcile import reconcile
from sweeps.driver.run import _recorded
from sweeps.driver.session import Session
from sweeps.driver.sweep_searcher import SweepSearcher
from sweeps.driver.sweep_state import SweepState
from sweeps.driver.trial_status import TrialStatus
from sweeps.errors import StorageFailed
from sweeps.runtime.attachment import TrialSoFar
from sweeps.runtime.checkpoint_layout import Origin, checkpoint_folder
from sweeps.runtime.events import Ended, Log, Note, Report, Saved, Started
from sweeps.runtime.report_log import ReportLog
from sweeps.search.schedulers.scheduler import Exploit, Verdict
from sweeps.search.study_search import StudySearch
from sweeps.space.space import Space
from sweeps.tracking import artifact_uploader
from sweeps.tracking.journal import Journal
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.trial_history import Span, Weights
from sweeps.worker_error import WorkerError

SPACE = Space({"train.lr": FloatDistribution(type="float", low=0.001, high=0.1)})
CONFIG: dict[str, Any] = {TRIAL: "0000", PARAMETERS: {"train.lr": 0.01}}
"""Config of the first trial in Tune."""


class _Told:
    """A recorder and a view that only remember; every call of them is allowed. Nothing is measured twice."""

    def __init__(self) -> None:
        self.named: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    @property
    def calls(self) -> list[tuple[str, tuple[Any, ...]]]:
        return [(name, arguments) for name, arguments, _ in self.named]

    @property
    def trials(self) -> _Told:
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self.named.append((name, arguments, named))

    def exploits(self, trial: str) -> int:
        return 0

    def log(self, *arguments: Any, competes: bool) -> tuple[float, ...] | None:
        self.named.append(("log", arguments, {"competes": competes}))
        value = arguments[2].get("eval/accuracy")
        return (value,) if competes and value is not None else None


class _DeadBroker:
    is_answering = True

    def __init__(self) -> None:
        self.asked = threading.Event()

    def drain(self, timeout_s: float) -> None:
        self.asked.set()
        raise ray.exceptions.RayActorError

    def stop_all(self) -> None:
        pass


def new_session(broker: Any = None, told: Any = None) -> tuple[_Told, Session]:
    broker, told = broker or MagicMock(), told or _Told()
    nothing: Any = None
    return told, Session(nothing, SweepState("s", composed_digits(), told, 1, Shutdown(broker)), told, broker)


def session_with_a_trial() -> tuple[_Told, Session]:
    told, session = new_session()
    session.lifecycle.started(CONFIG, 1)
    return told, session


def end(session: Session, result: dict[str, Any], error: str | None = None) -> None:
    """Let the trial end, and the session process all that Tune has told."""
    session.lifecycle.ended(CONFIG, result, error=error)
    session.lifecycle.process(session.lifecycle.queued())


OPTIONS: dict[str, Any] = {"metric": "eval/accuracy", "mode": "max"}


def search(num_trials: int = 1, **named: Any) -> StudySearch:
    return StudySearch(SPACE, **OPTIONS, num_trials=num_trials, **named)


def study_of(before: StudySearch) -> dict[str, Any]:
    """Options of a search by the next driver, in the same study."""
    return {"storage": before.study._storage, "study_name": before.study.study_name}


def test_a_trial_is_said_to_start_after_the_end_of_the_one_before() -> None:
    told, session = session_with_a_trial()
    session.lifecycle.ended(CONFIG, {COMPLETED: True})
    session.lifecycle.started({TRIAL: "0001", PARAMETERS: {"train.lr": 0.1}}, 1)
    session.lifecycle.process(session.lifecycle.queued())
    said = [arguments[1] for name, arguments in told.calls if name == "event"]
    assert [line.split(" at ")[0].split(":")[0] for line in said] == [
        "trial 0000 started",
        "trial 0000 finished",
        "trial 0001 started",
    ]


def test_a_trial_whose_actor_dies_before_its_start_is_announced_is_tried_again() -> None:
    told, session = new_session()
    session.lifecycle.retried("0000", "its actor died")
    session.lifecycle.process(session.lifecycle.queued())
    (said,) = [arguments[1] for name, arguments in told.calls if name == "event"]
    assert said.startswith("trial 0000: its actor died; it is tried again")


def session_with_a_report_log(folder: Path, *events: Log) -> tuple[_Told, Session]:
    """A session in a folder where the workers of the trial ``0000`` have written these events."""
    told, session = new_session()
    session.state.folder = folder
    log = ReportLog(str(checkpoint_folder(folder / "trials", "0000", 0)))
    for event in events:
        log.write(event)
    log.close()
    return told, session


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_trial_that_fails_before_its_start_and_after_the_clusters_end_is_recorded(is_resumed: bool) -> None:
    told, session = new_session(_DeadBroker())
    if is_resumed:
        session.state.trials["0000"] = TrialStatus("0000", {"train.lr": 0.01}, earlier_attempts=1)
        session.worker_events.take([Note("0000", 1, "a worker's note")])
    session.start()
    session._thread.join(30)  # the broker is gone, and with it what there is to follow
    session.lifecycle.ended(CONFIG, {}, error="no actor")
    session.close()
    ends = [arguments for name, arguments in told.calls if name == "end"]
    assert [(trial, state, error) for trial, state, *_, error in ends] == [("0000", "failed", "no actor")]
    assert [name for name, _ in told.calls if name in ("start", "record_notes")] == ["start", "record_notes"][
        : 1 + is_resumed
    ]
    assert session.state.counts()["failed"] == 1


def test_a_signal_to_ray_and_the_driver_at_once_interrupts_the_sweep_though_ray_is_gone_first() -> None:
    broker = _DeadBroker()
    _, session = new_session(broker)
    session.start()
    assert broker.asked.wait(30)
    time.sleep(0.2)
    session.state.shutdown.begin("interrupted")
    session._thread.join(30)
    assert (session.state.shutdown.status, session.state.shutdown.cluster_failure) == ("interrupted", None)


def test_a_second_ctrl_c_while_worker_groups_end_leaves_no_trials_end_unrecorded() -> None:
    told, session = session_with_a_trial()
    session.state.fit = replace(session.state.fit, lanes=2)
    broker: Any = session.broker
    broker.end_groups.side_effect = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), _recorded(session):
        pass
    assert not session._thread.is_alive()
    assert "end" in [name for name, _ in told.calls]


class _FailingRecorder(_Told):
    """Its journal cannot be written when a trial ends, or only as often as is said."""

    def end(self, *arguments: Any, **_: Any) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise self.error
        self.named.append(("end", arguments, {}))

    error: Exception
    failures = 10**9


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENODEV, errno.ESTALE])
def test_a_trials_end_that_cannot_be_written_ends_the_sweep_and_is_not_dropped(number: int) -> None:
    told = _FailingRecorder()
    told.error = StorageFailed(Path("outputs/s"), str(OSError(number, os.strerror(number))))
    broker = MagicMock()
    broker.drain.side_effect = ray.exceptions.RayActorError
    _, session = new_session(broker, told)
    session.start()
    session.lifecycle.ended(CONFIG, {}, error="no actor")
    session.close()
    assert session.state.shutdown.storage_failure is told.error
    assert os.strerror(number) in str(told.error)
    assert "python -m sweeps resume s" in str(told.error)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOTCONN, errno.EUCLEAN, errno.EKEYEXPIRED])
def test_a_worker_that_cannot_write_the_sweeps_folder_ends_the_sweep_and_not_its_trials_one_by_one(number: int) -> None:
    _, session = session_with_a_trial()
    session.state.folder = Path("/mnt/outputs/s")
    error = OSError(number, os.strerror(number), "/mnt/outputs/s/trials/0000/reports.jsonl")
    session.worker_events.take([Ended("0000", 1, f"worker 0 failed: OSError: {error}")])
    assert "python -m sweeps resume s" in str(session.state.shutdown.storage_failure)


@pytest.mark.parametrize(("free", "ends"), [(3 << 30, True), (50 << 30, False)])
def test_no_space_on_an_unnamed_disk_ends_the_sweep_only_if_its_own_disk_is_nearly_full(
    free: int, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, session = session_with_a_trial()
    session.state.folder = tmp_path
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=100 << 30, free=free))
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/dev/shm/torch_77_1")
    session.worker_events.take([Ended("0000", 1, f"worker 0 failed: OSError: {error}")])
    assert (session.state.shutdown.storage_failure is not None) is ends


@pytest.mark.parametrize("failures", [1, 2])
def test_ends_of_trials_are_recorded_when_the_disk_takes_them_again(failures: int) -> None:
    told = _FailingRecorder()
    told.error, told.failures = StorageFailed(Path("outputs/s")), failures
    broker = MagicMock()
    broker.drain.return_value = []
    _, session = new_session(broker, told)
    for trial in ("0000", "0001"):
        session.lifecycle.ended({TRIAL: trial, PARAMETERS: {"train.lr": 0.01}}, {}, error="no actor")
    session.start()
    wait_until(lambda: told.failures < 0, 30)
    session.close()
    assert [(arguments[0], arguments[1]) for name, arguments in told.calls if name == "end"] == [
        ("0000", "failed"),
        ("0001", "failed"),
    ]
    assert session.state.shutdown.storage_failure is told.error


def test_a_disk_that_is_full_after_any_entry_about_a_trial_leaves_nothing_out_of_its_run(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, left = Journal._write, [0]

    def fills_up(journal: Journal, line: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StorageFailed(Path("outputs"))
        write(journal, line)

    monkeypatch.setattr(Journal, "_write", fills_up)
    monkeypatch.setattr(artifact_uploader, "UPLOAD_AFTER_S", 0.0)

    def train(sweep: str, entries: int, *, resume: bool) -> bool:
        """Train the trial, unless it has ended, while the disk has room for some entries; returns whether it had."""
        left[0] = 100
        recorder = open_recorder(uri, sweep, resume=resume)
        state = SweepState(sweep, composed_digits(), _Told(), 1, Shutdown(MagicMock()), earlier=recorder.earlier)
        lifecycle = Session(MagicMock(), state, recorder, MagicMock()).lifecycle
        left[0] = entries
        with contextlib.suppress(StorageFailed):
            if not any(each.has_ended for each in state.all_trials):
                config = {TRIAL: "0000", PARAMETERS: {"train.lr": 0.01}}
                lifecycle.started(config, 1)
                lifecycle.ended(config, {STEP: 10, COMPLETED: True})
                lifecycle.process(lifecycle.queued())
        recorder.close("finished", *((0, 0) if left[0] < 0 else ()))
        return left[0] >= 0

    for entries in itertools.count():
        logs = Path("outputs", sweep := f"s-{entries}", "trials", "0000", "logs")
        logs.mkdir(parents=True)
        (logs / "worker-0.log").write_text("trained", encoding="utf-8")
        has_room = train(sweep, entries, resume=False)
        train(sweep, 100, resume=True)
        (trial,) = load_sweep(uri, sweep).trials
        run, files = MlflowClient(uri).get_run(trial.run_id), MlflowClient(uri).list_artifacts(trial.run_id)
        assert (trial.state, run.info.status) == ("finished", "FINISHED"), entries
        assert {file.path for file in files} == {"config.yaml", "logs"}, entries
        if has_room:
            break


@pytest.mark.parametrize("takes_events", [False, True])
def test_an_unexpected_error_while_events_are_taken_or_an_end_is_recorded_stops_the_trials_and_ends_the_driver(
    takes_events: bool,
) -> None:
    told, broker, error = _FailingRecorder(), MagicMock(), TypeError("a mistake of ours")
    told.error = error
    _, session = new_session(broker, told)
    broker.drain.side_effect = (lambda timeout_s: []) if takes_events else error
    session.lifecycle.ended(CONFIG, {}, error="no actor")
    session.start()
    session._thread.join(30)
    with pytest.raises(TypeError, match="a mistake of ours"):
        session.close()
    assert session.state.shutdown.status == "interrupted"
    assert broker.stop_all.called


def test_a_trial_that_waits_since_an_earlier_session_is_recorded_as_stopped_if_a_person_stops_it() -> None:
    told, session = new_session()
    session.state.trials["0000"] = TrialStatus("0000", {"train.lr": 0.01}, earlier_attempts=1)
    session.lifecycle.ended(CONFIG, {STOPPED: True})
    assert session.state.trials["0000"].state == "waiting", "it was interrupted, and continues in the next session"
    session.lifecycle.stop("0000")
    assert session.state.is_unwanted("0000")
    session.lifecycle.ended(CONFIG, {STOPPED: True})
    assert session.state.trials["0000"].state == "stopped"
    assert [named["for_good"] for name, _, named in told.named if name == "end"] == [True]


@pytest.mark.parametrize(("may_pause", "steps"), [(True, [5, 10, 15, 20]), (False, [5, 10])])
def test_a_trial_that_continues_brings_all_metrics_that_its_workers_do_not_post_again(
    tmp_path: Path, may_pause: bool, steps: list[int]
) -> None:
    told, session = session_with_a_report_log(
        tmp_path,
        *(Log("0000", 1, 5, {"train/loss": 1.0}, 1000), Report("0000", 1, 10, {"eval/accuracy": 0.5}, 1000)),
        *(Log("0000", 1, 15, {"train/loss": 1.0}, 1000), Report("0000", 1, 20, {"eval/accuracy": 0.5}, 1000)),
    )
    session.state.earlier = MagicMock()
    config = {TRIAL: "0000", PARAMETERS: {"train.lr": 0.01}, LAST_DELIVERED: 10, MAY_PAUSE: may_pause}
    session.lifecycle.started(config, 1)
    assert [arguments[1] for name, arguments in told.calls if name == "log"] == steps


def test_what_the_broker_had_not_passed_on_when_it_died_is_taken_from_the_report_log(tmp_path: Path) -> None:
    reports = [Report("0000", 1, step, {"eval/accuracy": step / 100}, step) for step in (10, 20, 30)]
    told, session = session_with_a_report_log(tmp_path, *reports)
    session.lifecycle.started(CONFIG, 1)
    session.worker_events.take([Started("0000", 1, 0), reports[0]])
    assert session.worker_events.broker_died() == {"0000": TrialSoFar(attempt=1, failures=0, step=10)}
    end(session, {STEP: 20, COMPLETED: False})  # the scheduler has stopped it there
    assert [arguments[1] for name, arguments in told.calls if name == "log"] == [10, 20]
    assert session.state.trials["0000"].values == (0.2,)


def test_what_the_workers_of_a_failed_trial_had_not_sent_when_they_died_is_taken_from_the_report_log(
    tmp_path: Path,
) -> None:
    events = [Log("0000", 1, step, {"train/loss": 1.0}, 1000) for step in range(1, 6)]
    told, session = session_with_a_report_log(tmp_path, *events)
    session.lifecycle.started(CONFIG, 1)
    session.worker_events.take([Started("0000", 1, 0), *events[:2], Ended("0000", 1, "its worker was killed")])
    end(session, {}, "its worker was killed")
    assert [arguments[1] for name, arguments in told.calls if name == "log"] == [1, 2, 3, 4, 5]


def test_what_a_trial_measured_since_it_continued_from_an_earlier_step_of_another_is_taken_from_the_report_log(
    tmp_path: Path,
) -> None:
    told, session = session_with_a_trial()
    session.state.folder = tmp_path
    told.exploits = lambda trial: 1  # type: ignore[attr-defined]
    told.record_exploit = lambda *_: True  # type: ignore[attr-defined]
    checkpoint_folder(tmp_path / "trials", "0000", 0).mkdir(parents=True)
    log = ReportLog(str(checkpoint_folder(tmp_path / "trials", "0000", 1)))
    for step in (11, 20):
        log.write(Log("0000", 2, step, {"train/loss": 1.0}, 1000))
    log.close()
    origin = Origin("0001", 10, 1)
    session.worker_events.take([Started("0000", 1, 0), Report("0000", 1, 20, {"eval/accuracy": 0.5}, 10)])
    session.worker_events.exploited(Exploit("0000", origin, {"train.lr": 0.02}))
    session.worker_events.take([Started("0000", 2, 0, origin), Ended("0000", 2, "its worker was killed")])
    end(session, {}, "its worker was killed")
    assert [arguments[1] for name, arguments in told.calls if name == "log"] == [20, 11, 20]


def test_what_a_trial_changed_when_it_continued_from_another_is_recorded_though_only_the_study_has_the_trial() -> None:
    before = search()
    assert before.next_trial() is not None
    origin = Origin("0001", 20, 1)
    before.exploited(Exploit("0000", origin, {"train.lr": 0.02}, {"event": "compared", "order": 1}))
    after = search(**study_of(before))
    told, session = new_session()
    reconcile(after, lambda path: None, session)
    suggested = after.next_trial()
    assert suggested is not None
    session.lifecycle.started({TRIAL: "0000", PARAMETERS: suggested.point}, 1)
    session.worker_events.take([Started("0000", 1, 0, suggested.origin)])
    recorded = [arguments for name, arguments in told.calls if name == "record_exploit"]
    assert recorded == [("0000", 1, 20, {"train.lr": 0.02})]


def test_a_broker_that_dies_again_before_any_trial_has_begun_is_announced_once() -> None:
    told, session = session_with_a_trial()
    broker: Any = session.broker
    broker.drain.side_effect = [None, [], None, None, [Started("0000", 1, 0)], [], None, None]
    for _ in range(8):
        session._take_posted(0.0)
    assert broker.attach.call_count == 5
    said = [arguments[1] for name, arguments in told.calls if name == "event"]
    assert len([line for line in said if "broker has died" in line]) == 2


def test_a_broker_that_is_late_with_its_answer_does_not_let_trials_end_before_their_events() -> None:
    broker = MagicMock(is_answering=True)
    told, session = new_session(broker)
    answers = iter([[], [Report("0000", 1, 20, {"eval/accuracy": 0.5}, 3)]])

    def drain(timeout_s: float) -> Any:
        events = next(answers, None)
        broker.is_answering = events != []
        return events or []

    broker.drain.side_effect = drain
    session.lifecycle.started(CONFIG, 1)
    session.lifecycle.ended(CONFIG, {STEP: 20, COMPLETED: True})
    session.start()
    session.close()
    assert [name for name, _ in told.calls if name in ("log", "end")] == ["log", "end"]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_workers_post_before_tune_says_that_their_trial_started_is_kept(is_resumed: bool) -> None:
    told, session = new_session()
    if is_resumed:
        session.state.trials["0000"] = TrialStatus("0000", {"train.lr": 0.01}, earlier_attempts=1)
    started = Started("0000", 1, 2000, assigned_ms=1000, workers=("a", "a"))
    session.worker_events.take([started, Log("0000", 1, 1, {"loss": 2.0}, 3000)])
    session.lifecycle.started(CONFIG, 1)
    session.worker_events.take([Log("0000", 1, 2, {"loss": 2.0}, 4000), Ended("0000", 1, timestamp_ms=5000)])
    assert [name for name, _ in told.calls] == ["start", "record_spans", "log", "log", "record_spans"]
    status = session.state.trials["0000"]
    assert (status.train_s, status.is_starting) == (2.0, False)
    assert status.spans == [Span(held=1, trained=2, ended=5, workers=("a", "a"))]


def test_an_attempt_whose_end_nobody_reported_ends_when_the_trial_gets_other_workers() -> None:
    _, session = session_with_a_trial()
    session.worker_events.take(
        [Started("0000", 1, 2000, assigned_ms=1000), Started("0000", 2, 9000, assigned_ms=8000, workers=("b",))]
    )
    assert session.state.trials["0000"].spans == [
        Span(held=1, trained=2, ended=8),
        Span(held=8, trained=9, workers=("b",)),
    ]


def test_a_clock_that_is_set_back_takes_no_time_from_a_trial() -> None:
    _, session = session_with_a_trial()
    hour_ms = 3_600_000
    session.worker_events.take([Started("0000", 1, hour_ms)])
    session.worker_events.take([Log("0000", 1, step, {"loss": 1.0}, 1000 * step) for step in (10, 20)])
    assert session.state.trials["0000"].train_s == 10.0


def test_workers_say_at_their_end_what_they_have_saved_also_at_no_evaluation() -> None:
    told, session = session_with_a_trial()
    session.worker_events.take([Report("0000", 1, 10, {"eval/accuracy": 0.5}, 3, checkpoint="/t/step-00000010")])
    session.worker_events.take([Log("0000", 1, 15, {"train/loss": 2.0}, 4)])
    assert session.state.trials["0000"].kept(is_lost=False) == "lost its work since its checkpoint of step 10"
    session.worker_events.take([Ended("0000", 1, saved_step=17, timestamp_ms=5000)])
    assert session.state.trials["0000"].kept(is_lost=False) == "saved its state"
    assert ("saved", ("0000", 17)) in told.calls


def test_what_a_pruned_trial_measures_before_its_workers_stop_is_not_taken() -> None:
    told, session = new_session()
    session.decisions.begin(lambda trial, result: Verdict.STOP if result[STEP] == 20 else Verdict.CONTINUE)
    session.lifecycle.started(CONFIG, 1)
    session.worker_events.take(
        [
            Report("0000", 1, 20, {"eval/accuracy": 0.5}, 3),
            Report("0000", 1, 40, {"eval/accuracy": 0.9}, 4),
            Log("0000", 1, 60, {"loss": 2.0}, 5),
        ]
    )
    end(session, {"eval/accuracy": 0.5})
    session.worker_events.take([Saved("0000", 1, 20, {"eval/accuracy": 0.5}, 3, checkpoint="a")])
    # Its workers may have removed the checkpoint before for a later one.
    session.worker_events.take([Report("0000", 1, 60, {"eval/accuracy": 0.8}, 6, checkpoint="b")])
    status = session.state.trials["0000"]
    assert (status.state, status.step, status.values) == ("pruned", 20, (0.5,))
    assert [arguments[1] for name, arguments in told.calls if name == "log"] == [20]
    assert [arguments[1] for name, arguments in told.calls if name == "record_checkpoint"] == ["a", "b"]


def test_an_evaluation_that_is_no_report_or_of_step_0_is_recorded_and_does_not_compete() -> None:
    told, session = session_with_a_trial()
    session.worker_events.take(
        [
            Log("0000", 1, 0, {"eval/accuracy": 0.9}, 3),
            Report("0000", 1, 0, {"eval/accuracy": 0.9}, 3),
            Report("0000", 1, 20, {"eval/accuracy": 0.5}, 4),
            Log("0000", 1, 30, {"eval/accuracy": 0.9}, 5),
        ]
    )
    assert session.state.trials["0000"].values == (0.5,)
    assert session.state.trials["0000"].curve == [(20, 0.5)]
    logged = [(arguments[1], named["competes"]) for name, arguments, named in told.named if name == "log"]
    assert logged == [(0, False), (0, False), (20, True), (30, False)]


def test_the_best_checkpoint_is_the_best_of_those_that_were_saved() -> None:
    told, session = session_with_a_trial()
    session.worker_events.take(
        [
            Saved("0000", 1, 0, {}, 2, checkpoint="untrained"),
            Report("0000", 1, 10, {"eval/accuracy": 0.5}, 3, checkpoint="a"),
            Report("0000", 1, 20, {"eval/accuracy": 0.9}, 4),
            Report("0000", 1, 30, {"eval/accuracy": 0.7}, 5),
            Saved("0000", 1, 30, {"eval/accuracy": 0.7}, 5, checkpoint="b"),
            Report("0000", 1, 40, {"eval/accuracy": 0.6}, 6, checkpoint="c"),
        ]
    )
    assert session.state.trials["0000"].values == (0.9,)
    recorded = [(*each[1][1:], each[2]["weights"]) for each in told.named if each[0] == "record_checkpoint"]
    assert recorded == [
        ("untrained", "last", Weights(0, ())),
        ("a", "last", "best", Weights(10, (0.5,))),
        ("b", "last", "best", Weights(30, (0.7,))),
        ("c", "last", Weights(40, (0.6,))),
    ]


@pytest.mark.parametrize("moved", [None, "any trial in the lanes may be the cause"])
def test_a_hang_leaves_the_stacks_and_flight_records_of_its_workers_in_the_run(moved: str | None) -> None:
    told, session = session_with_a_trial()
    hang = WorkerError(
        "hang", "Hang", "its workers hang", rank=0, num_workers=2, node="a", traceback="--- worker 1 ---"
    )
    end = Ended("0000", 1, hang.described, hang, flight_records=('{"entries": []}', None), moved=moved)
    session.worker_events.take([end])
    attached = {arguments[1]: arguments[2] for name, arguments in told.calls if name == "attach"}
    assert set(attached) == {"logs/attempt-1.traceback.txt", "logs/attempt-1.flight-record-0.json"}
    assert "--- worker 1 ---" in attached["logs/attempt-1.traceback.txt"]


def test_a_trial_that_a_person_stopped_for_good_is_stopped_again_if_only_the_record_knows() -> None:
    """Its driver died after it had recorded the end, and before it told the study."""
    broker = MagicMock()
    _, session = new_session(broker)
    study = search(2)
    for _ in range(2):
        study.next_trial()
    again = search(2, **study_of(study))
    for trial, is_unwanted in (("0000", True), ("0001", False)):
        session.state.trials[trial] = TrialStatus(trial, {}, "stopped", is_unwanted=is_unwanted)
    reconcile(again, lambda path: None, session)
    assert broker.stop_for_good.call_args_list == [call("0000")]


def test_a_trial_that_a_person_stopped_has_no_error_though_only_the_study_knows_its_end() -> None:
    """Its driver died after it had told the study, and before it recorded the end."""
    _, session = new_session()
    study = search()
    study.next_trial()
    study.end(0, {"eval/accuracy": 0.5, STEP: 20, STOPPED: True})
    again = search(**study_of(study))
    session.state.trials["0000"] = status = TrialStatus("0000", {}, "waiting")
    reconcile(again, lambda path: None, session)
    assert (status.state, status.error) == ("stopped", None)


def test_a_trial_that_a_person_has_asked_to_stop_is_stopped_for_good_though_the_sweep_is_interrupted_first() -> None:
    told, session = session_with_a_trial()
    session.lifecycle.started({TRIAL: "0001", PARAMETERS: {"train.lr": 0.1}}, 1)
    session.lifecycle.stop("0000")
    session.state.shutdown.begin("interrupted")
    session.lifecycle.all_ended()
    session.lifecycle.process(session.lifecycle.queued())
    ends = [(arguments[0], arguments[1], named["for_good"]) for name, arguments, named in told.named if name == "end"]
    assert ends == [("0000", "stopped", True), ("0001", "stopped", False)]


def test_the_attempts_of_a_trial_that_an_extension_lets_go_on_are_counted_on_and_a_stop_of_it_is_kept() -> None:
    told, session = new_session()
    session.state.trials["0000"] = TrialStatus("0000", {"train.lr": 0.01}, earlier_attempts=3)
    study = search()
    study.next_trial()
    for is_unwanted in (False, True):
        session.lifecycle.started(CONFIG, 1)
        session.state.trials["0000"].is_unwanted = is_unwanted
        session.state.shutdown.budget_is_spent("search.stop.wall_hours=1 is used up")
        end(session, {STOPPED: True})
        session.state.shutdown.budget_is_raised()
        again = search(**study_of(study))
        reconcile(again, lambda path: None, session)
    assert [arguments[3] for name, arguments in told.calls if name == "start"] == [4, 5]
    assert session.broker.stop_for_good.call_args_list == [call("0000")]  # type: ignore[attr-defined]


def test_a_search_that_continues_waits_for_the_ends_of_its_trials_and_counts_their_attempts_on() -> None:
    class SlowDisk(_Told):
        def end(self, *_: Any, **__: Any) -> None:
            time.sleep(0.2)

    broker = MagicMock(is_answering=True)
    broker.drain.side_effect = lambda timeout_s: []
    told, session = new_session(broker, SlowDisk())
    study = search()
    study.next_trial()
    session.start()
    session.lifecycle.started(CONFIG, 1)
    session.lifecycle.ended(CONFIG, {STOPPED: True})
    reconcile(search(**study_of(study)), lambda path: None, session)
    session.lifecycle.started(CONFIG, 1)
    session.close()
    assert [arguments[3] for name, arguments in told.calls if name == "start"] == [1, 2]


class _FullPools:
    def __len__(self) -> int:
        return 1

    def choose(self, *_: Any) -> None:
        return None

    def release(self, trial_id: str) -> None:
        pass


@pytest.mark.parametrize("pools", [None, _FullPools()])
def test_a_trial_that_a_spent_budget_has_stopped_does_not_start_again(pools: Any) -> None:
    _, session = new_session()
    session.state.pools = pools
    options = {**OPTIONS, "num_trials": 2}
    before = SweepSearcher(session, SPACE, **options)
    before.suggest("first")  # it starts, or waits for room in a pool
    session.state.shutdown.budget_is_spent("search.stop.wall_hours=1 is used up")
    before.on_trial_complete("first", {STEP: 0, STOPPED: True})
    after = SweepSearcher(session, SPACE, **options, **study_of(before))
    for searcher in (after, before):
        assert searcher.suggest("second") == SweepSearcher.FINISHED
        assert searcher.ended_because == "search.stop.wall_hours=1 is used up"
    assert [each.number for each in after.unfinished] == [0], "with a larger budget it goes on"


@pytest.mark.parametrize(
    ("another_reports", "is_kept"),
    [(None, True), ("before", False), ("after", False)],
)
def test_a_trial_that_had_reported_and_fails_at_its_next_start_goes_on_later_unless_another_one_trains(
    another_reports: str | None, is_kept: bool
) -> None:
    told, session = new_session()
    options = {**OPTIONS, "num_trials": 1}
    earlier = SweepSearcher(session, SPACE, **options)
    earlier.suggest("first")
    earlier.on_trial_result("first", {STEP: 5, "training_iteration": 5, "eval/accuracy": 0.9})
    searcher = SweepSearcher(session, SPACE, **options, **study_of(earlier))
    searcher.suggest("again")
    session.lifecycle.started(CONFIG, 1)
    status, other = session.state.trials["0000"], TrialStatus("0001", {})
    status.has_reported = True
    if another_reports == "before":
        session.retries.reported(other, 1)
    why = "task._target_=mine.train: cannot be imported"
    session.retries.allows(status, why)
    searcher.on_trial_complete("again", {FAILED: why, STEP: 5})
    session.lifecycle.ended(CONFIG, {}, error=why)
    if another_reports == "after":
        session.retries.reported(other, 1)
    assert searcher.suggest("none") == SweepSearcher.FINISHED
    searcher.settle()
    session.lifecycle.process(session.lifecycle.queued())
    ends = [arguments[:2] for name, arguments in told.calls if name == "end"]
    assert ends == [("0000", "failed"), *([("0000", "stopped")] if is_kept else [])]
    assert (session.state.shutdown.failing or "").startswith("a trial that had reported failed") is is_kept
    after = SweepSearcher(session, SPACE, **options, **study_of(earlier))
    assert [each.number for each in after.unfinished] == ([0] if is_kept else [])
