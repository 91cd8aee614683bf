"""Mistakes are not retried, and a sweep whose trials all fail alike ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ray.train._internal.storage import StorageContext
from ray.tune import TuneError
from ray.tune.experiment import Trial
from running import own_network, run
from test_report_decisions import state_of

from sweeps.driver.retries import Retries, failure_reason, recurs
from sweeps.driver.trial_status import TrialStatus
from sweeps.worker_error import describe_exception


def error_of(exception: BaseException) -> Any:
    return describe_exception(exception, rank=0, num_workers=2)


@pytest.mark.parametrize(
    "exception",
    [
        TypeError("Net.__init__() got an unexpected keyword argument 'widht'"),
        FileNotFoundError(2, "No such file or directory", "train.csv"),
        PermissionError(13, "Permission denied", "train.csv"),
        ValueError("data.path=x: nothing to learn from"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (64x256 and 64x10)"),
        IndexError("Target 12 is out of bounds."),
        KeyError("lr"),
        AssertionError(),
        SystemExit(3),
        RuntimeError("CUDA error: device-side assert triggered"),
    ],
)
def test_an_error_at_the_first_step_comes_again_and_after_a_report_it_may_pass(exception: BaseException) -> None:
    error = error_of(exception)
    assert recurs(error.described, error, reported=False)
    assert not recurs(error.described, error, reported=True)


@pytest.mark.parametrize(
    "exception",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
        RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]"),
        RuntimeError("NCCL error: unhandled system error"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        TimeoutError("the store did not answer"),
        ConnectionResetError(104, "Connection reset by peer"),
        OSError(5, "Input/output error"),
        ValueError("data.path=s3://b/x cannot be read: [Errno 5] Input/output error"),
        RuntimeError("DataLoader worker (pid(s) 4242) exited unexpectedly"),  # the kernel has killed it for its memory
    ],
)
def test_an_error_from_outside_may_pass_also_at_the_first_step(exception: BaseException) -> None:
    error = error_of(exception)
    assert not recurs(error.described, error, reported=False)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("search.metric=los is not among the reported metrics: loss", True),
        ("ConfigError: train.lr=-1: must be greater than 0", True),
        ("no report for 1800 s: its workers hang", False),
        ("the slot's workers died before the trial began", False),
        ("ActorDiedError: The actor died unexpectedly before finishing this task.", False),
        ("", False),
    ],
)
def test_what_no_worker_has_told_is_judged_by_its_words(text: str, again: bool) -> None:
    assert recurs(text, None, reported=False) is again


def failing(retries: Retries, status: TrialStatus, *exceptions: BaseException) -> list[bool]:
    """Whether a trial is tried again after each of its attempts."""
    again = []
    for exception in exceptions:
        error = error_of(exception)
        again.append(retries.allows(status, error.described, error))
    return again


def test_in_a_sweep_that_works_an_error_at_the_first_step_is_tried_again_until_it_is_seen_twice() -> None:
    fails, works = TrialStatus("0000", {}, attempt=1), TrialStatus("0001", {}, has_reported=True)
    retries = Retries(state_of(fails, works))
    half_written = ValueError("Expecting value: line 1 column 1 (char 0)")
    assert failing(retries, fails, half_written, RuntimeError("size 7"), RuntimeError("size 8")) == [True, True, False]
    assert failing(retries, fails, half_written, RuntimeError("another")) == [False, True]
    assert failing(retries, fails, ValueError("train.lr=-1: must be greater than 0")) == [False]
    assert failing(Retries(state_of(fails)), fails, half_written) == [False]


def test_retries_and_actors_that_died_count_together() -> None:
    status = TrialStatus("0000", {}, attempt=1, has_reported=True)
    retries = Retries(state_of(status, max_retries=2))
    assert retries.max_deaths("0000") == retries.max_deaths("0001") == 2
    assert retries.allows(status, "its workers hang")
    status.begin_again()
    assert retries.max_deaths("0000") == 1
    status.attempt += 1  # its actor has died
    assert not retries.allows(status, "its workers hang")


def test_errors_of_the_trials_actors_that_come_again_are_alike_too() -> None:
    retries = Retries(state_of())
    reasons = [retries.failed(f"000{number}", f"ValueError: {number} GPUs") for number in range(3)]
    assert reasons == [None, None, "3 trials failed at their first step with the same error: ValueError: 2 GPUs"]
    assert [retries.failed(f"000{number}", "its workers hang") for number in range(3)] == [None, None, None]


def test_three_trials_that_fail_alike_at_their_first_step_are_a_reason_to_start_no_other() -> None:
    trials = [TrialStatus(f"000{number}", {}, attempt=1) for number in range(4)]
    retries = Retries(state_of(*trials))
    reasons = []
    for status in trials[:3]:
        retries.allows(status, "search.metric=los is not among the reported metrics: loss")
        reasons.append(retries.failed(status.trial, "no los"))
    assert reasons == [None, None, "3 trials failed at their first step with the same error: no los"]
    retries.allows(trials[3], "its workers hang")
    assert retries.failed("0003", "they hang") is None
    retries.begin()
    retries.allows(trials[0], "search.metric=los is not among the reported metrics: loss")
    assert retries.failed("0000", "no los") is None


def failures_until_the_end(retries: Retries, *, most: int = 99) -> int:
    """How many new trials fail with the same error until no further one is to start."""
    for number in range(1, most + 1):
        status = TrialStatus(f"{number:04}", {}, attempt=1)
        retries.allows(status, "no los", error_of(KeyError("los")))
        if retries.failed(status.trial, "KeyError: 'los'") is not None:
            return number
    return most


@pytest.mark.parametrize(("concurrent", "later"), [(1, 6), (4, 8)])
def test_after_a_report_more_trials_must_fail_alike_and_more_again_after_the_next_one(
    concurrent: int, later: int
) -> None:
    works = TrialStatus("0000", {})
    retries = Retries(state_of(works, concurrent=concurrent))
    assert failures_until_the_end(retries) == 3
    retries.begin()
    retries.reported(works, 1)
    assert failures_until_the_end(retries) == later
    retries.reported(works, 1)
    assert failures_until_the_end(retries) == 2 * later
    retries.begin()
    retries.reported(works, 1)
    assert failures_until_the_end(retries, most=later - 1) == later - 1
    retries.reported(works, 1)  # in between
    assert failures_until_the_end(retries, most=later + 1) == later + 1


def test_the_repeated_report_of_a_checkpoint_does_not_tell_that_a_trial_can_train() -> None:
    status = TrialStatus("0000", {}, begins_at=5)
    retries = Retries(state_of(status))
    retries.reported(status, 5)
    assert (status.has_reported, status.has_begun, retries.num_reports) == (True, False, 0)
    retries.reported(status, 6)
    assert (status.has_begun, retries.num_reports) == (True, 1)


def test_errors_from_outside_that_did_not_pass_count_too() -> None:
    trials = [TrialStatus(f"000{number}", {}, attempt=1) for number in range(3)]
    retries, full = Retries(state_of(*trials, max_retries=1)), OSError(28, "No space left on device", "/tmp/torch_1")
    reasons = []
    for each in trials:
        assert failing(retries, each, full) == [True]
        each.attempt = 2
        assert failing(retries, each, full) == [False]
        reasons.append(retries.failed(each.trial, "No space left on device"))
    assert [reason is None for reason in reasons] == [True, True, False]


def test_a_trial_that_had_reported_counts_if_it_fails_before_a_report_of_its_present_attempt() -> None:
    trials = [TrialStatus(f"000{number}", {}, attempt=1, has_reported=True) for number in range(3)]
    retries = Retries(state_of(*trials))
    text = "mine.train cannot be imported"
    assert [failing(retries, each, ModuleNotFoundError(text)) for each in trials] == [[True]] * 3  # as max_retries says
    assert [retries.failed(each.trial, text) is None for each in trials] == [True, True, False]
    retries.begin()
    for each in trials:
        retries.reported(each, 1)
        failing(retries, each, ModuleNotFoundError(text))
        assert not retries.at_start(each.trial, f"task._target_: {text}")
        each.begin_again()
        failing(retries, each, ModuleNotFoundError(text))
        assert retries.at_start(each.trial, text)


def test_the_reason_is_that_of_the_last_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.train._internal.storage._get_ray_train_session_dir", lambda: str(tmp_path / "session"))
    storage = StorageContext(str(tmp_path), experiment_dir_name="sweep", trial_dir_name="trial")
    trial = Trial("__fake", storage=storage, stub=True)
    trial.init_local_path()
    assert failure_reason(trial) == "unknown error"
    for number in (1, 2):
        trial.handle_error(TuneError(f"Traceback\nsweeps.errors.TrialFailed: RuntimeError: number {number}"))
        assert failure_reason(trial) == f"RuntimeError: number {number}"


FAILS_ON_WORKERS = """
import os
from torch import nn

class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layer = nn.Linear(60 if "RANK" in os.environ else 64, 10)

    def forward(self, images):
        return self.layer(images.flatten(1))
"""


@pytest.mark.slow
@pytest.mark.timeout(280)  # three starts of workers
def test_a_sweep_whose_trials_fail_alike_ends_with_that_error_and_says_how_to_go_on(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        *own_network(tmp_path, FAILS_ON_WORKERS),
        "train.lr=tag(log, interval(1e-4, 1e-1))",
        "search.num_trials=9",
        "search.max_concurrent=1",
        "--name=alike",
    )
    assert done.status == 1
    assert done.document["status"] == "failed"
    assert [trial["attempts"] for trial in done.document["trials"]] == [1, 1, 1]
    said = [line for line in done.err.splitlines() if "3 trials failed at their first step with the same error" in line]
    assert len(said) == 1
    assert "shapes cannot be multiplied" in said[0]
    assert "nets.py:11" in said[0]
    assert "`python -m sweeps resume alike` continues it" in said[0]
