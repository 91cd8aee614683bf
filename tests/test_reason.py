"""Why a training has ended: the line that is shown."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from sweeps.runtime.reason import TRACEBACK, reason
from sweeps_train.targets import call_target


def misspells() -> None:
    {"lr": 1}["learning_rate"]


def says_more() -> None:
    try:
        misspells()
    except KeyError as error:
        text = "model.path=none cannot be loaded: no such file\nCheck your connection: or\nread a page"
        raise ValueError(text) from error


def calls_a_library() -> None:
    import json

    json.loads("{")


class FromWorkers(Exception):
    def __init__(self, error: BaseException):
        text = "".join(traceback.format_exception(error))
        other = text.replace(__file__, "another_workers.py")
        super().__init__(f"Training failed:\n[Rank 1 Error Snippet]:\n{text}\n[Rank 3 Error Snippet]:\n{other}")
        self.worker_failures = {1: error, 3: error}


def raised(function: Callable[[], Any]) -> FromWorkers:
    with pytest.raises(Exception, match=r".") as caught:
        function()
    return FromWorkers(caught.value)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (misspells, "KeyError: 'learning_rate'"),
        (says_more, "model.path=none cannot be loaded: no such file"),
        (calls_a_library, "Expecting property name enclosed in double quotes: line 1"),
    ],
)
def test_the_line_says_what_happened_and_where_in_a_users_code(function: Callable[[], None], said: str) -> None:
    told = reason(raised(function))
    assert told.startswith(said)
    line = int(told.removesuffix(")").rpartition(f" ({__file__}:")[2])
    assert 0 < line - function.__code__.co_firstlineno < 7


def test_a_mistake_that_we_tell_has_no_place_in_a_users_code() -> None:
    error = raised(lambda: call_target("data", "no_such_module.name", {}))
    error.args = (error.args[0].replace(__file__, "<here>"),)
    assert "no_such_module" in reason(error)
    assert not re.search(r"\.py:\d+\)$", reason(error))


def test_an_error_is_told_by_its_first_line_and_one_that_quotes_a_traceback_by_its_last() -> None:
    assert reason(RuntimeError("first\nlast")) == "RuntimeError: first"
    assert reason(RuntimeError(f"{TRACEBACK}\n  frame\nValueError: no")) == "ValueError: no"
    assert reason(OSError()) == "OSError"
