"""The error that a worker sends: what happened, where in a user's code, on which worker, and which was the cause."""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import sweeps
from sweeps.errors import TrialFailed
from sweeps.folders.trial_files import traceback_text
from sweeps.provenance.redacted_text import redacted_error, redacted_log
from sweeps.runtime.attempt import with_errors
from sweeps.runtime.events import Ended
from sweeps.runtime.lost_worker import TRACEBACK, summarize_error
from sweeps.runtime.worker_loop import errors_printed
from sweeps.search.advisors.failures import classify
from sweeps.worker_error import WorkerError, describe_exception, is_user_code, root_cause
from sweeps_train.targets import call_target


def misspells() -> None:
    {"lr": 1}["learning_rate"]


def says_more() -> None:
    try:
        misspells()
    except KeyError as error:
        text = "model.path=none cannot be loaded: no such file\nCheck your connection: or\nread a page"
        raise ValueError(text) from error


def names_a_key() -> None:
    text = "data.path: rows.jsonl is not JSON"
    raise ValueError(text)


def calls_a_library() -> None:
    json.loads("{")


def has_wrong_shapes() -> None:
    torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Linear(64, 10))(torch.zeros(4, 8))


def names_a_file_that_is_no_text() -> None:
    text = os.fsdecode(b"bad \xff")
    raise ValueError(text)


def starts_a_thread_too_many() -> None:
    raise RuntimeError("can't start new thread")  # as Python's threading does


def exits() -> None:
    sys.exit(3)


class CannotBePickledOrShown(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    def __reduce__(self) -> Any:
        raise RuntimeError


def is_odd() -> None:
    raise CannotBePickledOrShown


def error_of(function: Callable[[], Any], rank: int = 0, num_workers: int = 1) -> WorkerError:
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - as a worker does
        return redacted_error(describe_exception(error, rank, num_workers))
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "said", "source"),
    [
        (misspells, "KeyError: 'learning_rate'", '{"lr": 1}["learning_rate"]'),
        (says_more, "model.path=none cannot be loaded: no such file", "raise ValueError(text) from error"),
        (names_a_key, "data.path: rows.jsonl is not JSON", "raise ValueError(text)"),
        (calls_a_library, "JSONDecodeError: Expecting property name enclosed in double quotes", 'json.loads("{")'),
        (has_wrong_shapes, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x32 and 64x10)", "Sequential("),
        (names_a_file_that_is_no_text, "ValueError: bad \\udcff", "raise ValueError(text)"),
        (starts_a_thread_too_many, "RuntimeError: can't start new thread; raise `ulimit -u`, or", "raise"),
        (exits, "sys.exit(3) ended the worker; return from the function instead", "sys.exit(3)"),
        (is_odd, "CannotBePickledOrShown: <exception str() failed>", "raise CannotBePickledOrShown"),
    ],
)
def test_the_line_says_what_happened_and_shows_the_line_of_the_users_code(
    function: Callable[[], None], said: str, source: str
) -> None:
    error = pickle.loads(pickle.dumps(error_of(function)))
    assert error.described.startswith(said)
    assert "\n" not in error.described
    assert error.frame is not None
    assert (error.frame.file, error.frame.function) == (__file__, function.__name__)
    assert source in error.frame.source
    assert f"{__file__}:{error.frame.line} in {function.__name__}: " in error.described
    assert 0 < error.frame.line - function.__code__.co_firstlineno < 7
    assert error.traceback.startswith(TRACEBACK)
    assert (error.message + error.traceback).encode()


@pytest.mark.parametrize("is_closed", [False, True])
def test_an_error_is_told_whatever_it_says_and_whether_or_not_stderr_is_open(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_closed: bool
) -> None:
    with monkeypatch.context() as patched, os.fdopen(os.dup(2), "w", encoding="ascii") as stream:
        patched.setattr(sys, "stderr", stream)
        if is_closed:
            stream.close()
        with pytest.raises(ValueError, match=r"^bad .$"), errors_printed():
            names_a_file_that_is_no_text()
    assert capfd.readouterr().err.endswith("ValueError: bad \\udcff\n")


def test_the_whole_traceback_is_there_with_its_causes() -> None:
    error = error_of(says_more)
    assert "The above exception was the direct cause" in error.traceback
    assert "KeyError: 'learning_rate'" in error.traceback
    assert "read a page" in error.traceback


def test_a_file_in_the_working_folder_is_named_as_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(re.sub(r"/[^/]*$", "", __file__))
    assert "(at test_worker_error.py:" in error_of(misspells).described


def test_a_folder_whose_name_begins_as_that_of_sweeps_has_users_code() -> None:
    folder = Path(sweeps.__file__).parent
    assert is_user_code(f"{folder}_of_mine/train.py")
    assert not is_user_code(f"{folder}/errors.py")


def test_a_mistake_that_we_tell_has_no_place_in_a_users_code() -> None:
    error = error_of(lambda: call_target("data", "no_such_module.name", {}))
    assert "no_such_module" in error.described
    assert error.frame is None or not error.frame.file.endswith("targets.py")


def test_one_of_several_workers_is_named() -> None:
    error = error_of(misspells, rank=1, num_workers=2)
    assert error.described.endswith(f"; worker 1 on {error.node}")


def test_text_without_end_is_cut_and_secrets_are_hidden() -> None:
    def shouts() -> None:
        raise ValueError("postgresql://me:hunter2@host/db " + "x" * 2_000_000)

    error = error_of(shouts)
    assert len(error.described) < 1_200
    assert len(error.traceback) < 600_000
    assert "hunter2" not in repr(error)


def test_a_line_of_a_megabyte_is_redacted_at_once() -> None:
    import time

    began = time.process_time()
    redacted_log("a" * 1_000_000 + "\n" + "one line of many\n" * 100_000)
    assert time.process_time() - began < 10
    assert redacted_log("one\npassword=hunter2\ntwo") == "one\npassword=***\ntwo"


def test_no_secret_is_told_for_being_long_or_in_a_long_line() -> None:
    key = "\n".join(
        ["-----BEGIN RSA PRIVATE KEY-----", *["MIIEowIBAAKCAQEA" * 4] * 20, "-----END RSA PRIVATE KEY-----"]
    )
    assert redacted_log(f"one\n{key}\ntwo\n") == "one\n***\ntwo\n"
    for before in range(450, 520):
        assert redacted_log("-" * before + " hf_" + "A" * 30 + " end").endswith("- *** end"), before


def peer(rank: int) -> WorkerError:
    def loses_its_peer() -> None:
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:1234")

    return error_of(loses_its_peer, rank, 3)


def lost(rank: int) -> WorkerError:
    message = f"worker {rank} on node-b was lost: its process was killed or crashed"
    return WorkerError("lost", "ActorDiedError", message, rank, 3, "node-b")


def test_a_broken_connection_is_no_cause_and_a_lost_worker_only_where_nobody_says_more() -> None:
    own = error_of(misspells, 1, 3)
    assert peer(0).kind == "peer"
    assert root_cause([peer(0), own, peer(2)]) == own
    assert root_cause([peer(0), own, lost(1)]) == own
    assert root_cause([peer(0), lost(2)]) == lost(2)
    assert root_cause([peer(0)]) == peer(0)
    assert root_cause([]) is None


def test_the_end_of_a_trial_names_the_cause_and_keeps_the_others() -> None:
    ended = with_errors(Ended("0003", 1, "whatever Ray says", others=(lost(2),)), [peer(0), peer(1)], "none")
    assert ended.error == "worker 2 on node-b was lost: its process was killed or crashed"
    assert ended.failure == lost(2)
    assert [each.rank for each in ended.others] == [0, 1]
    halved = Ended("0003", 1, "out of memory", halved_to=2)
    assert with_errors(halved, [peer(0)], "none") == halved
    good = Ended("0003", 1)
    assert with_errors(good, [peer(0)], "none") == good


def test_the_file_has_the_tracebacks_of_all_workers_the_cause_first() -> None:
    text = traceback_text("0003", 2, [error_of(misspells, 1, 2), peer(0)])
    assert text.startswith("trial 0003, attempt 2: KeyError: 'learning_rate'")
    assert text.index("--- worker 1 on") < text.index("--- worker 0 on")
    assert text.count(TRACEBACK) == 2


def test_errors_are_alike_whose_numbers_differ() -> None:
    def fails(step: int) -> WorkerError:
        def train() -> None:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({step}x3)")

        return error_of(train)

    assert fails(3).alike == fails(17).alike != error_of(misspells).alike


def test_a_word_in_a_line_of_code_is_no_kind_of_failure() -> None:
    def reads() -> None:
        {}["x" if float("nan") else "y"]

    assert "nan" in error_of(reads).described
    assert classify(error_of(reads).described) == "crashed"


def test_a_failed_trial_carries_its_error_between_processes() -> None:
    failed = pickle.loads(pickle.dumps(TrialFailed("KeyError: 'x'", error_of(misspells))))
    assert str(failed) == "KeyError: 'x'"
    assert failed.error == error_of(misspells)


def test_what_has_no_record_is_told_by_its_first_line_and_what_quotes_a_traceback_by_its_last() -> None:
    assert summarize_error(RuntimeError("first\nlast")) == "RuntimeError: first"
    assert summarize_error(RuntimeError(f"{TRACEBACK}\n  frame\nValueError: no")) == "ValueError: no"
    assert summarize_error(OSError()) == "OSError"
