"""A sweep does not end, and loses nothing, when nobody can see it any more."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import NO_PREFLIGHT, SHORT, Done, start

from sweeps.driver.guarded_view import GuardedView
from sweeps.driver.terminal_view import PlainView
from sweeps.report.plain_console import plain_console


@pytest.mark.parametrize("events", [0, 1, 100])
def test_a_reader_that_has_gone_away_costs_nothing(events: int, capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    state: Any = SimpleNamespace(progress="0/4")
    with os.fdopen(writer, "w", buffering=1) as stream, PlainView(plain_console(file=stream)) as view:
        view.starting("first: 4 trials")
        for _ in range(events):
            view.event(state, "trial 0000 started")
    print("the result")
    assert capfd.readouterr().out == "the result\n"  # rich would have closed stdout


def test_a_reader_that_pauses_holds_nothing_up_and_sees_everything_later() -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    state: Any = SimpleNamespace(progress="0/400")
    texts = [f"trial {number:04} started" for number in range(400)]
    seen: list[str] = []

    def read() -> None:
        with os.fdopen(reader) as lines:
            seen.extend(line.partition("] ")[2].strip() for line in lines)

    with os.fdopen(writer, "w", buffering=1) as stream, PlainView(plain_console(file=stream)) as view:
        for text in texts:
            view.event(state, text)  # more than the pipe holds
        reads = threading.Thread(target=read)
        reads.start()
    reads.join()
    assert seen == texts


def test_a_users_view_may_lack_the_start_and_may_fail_and_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    class Users:
        seen = 0

        def changed(self, state: Any) -> None:
            self.seen += 1

        def event(self, state: Any, text: str) -> None:
            self.seen += 1
            raise ValueError("a mistake of the user")

    users: Any = Users()
    state: Any = None
    view = GuardedView(users)
    view.starting("first: 4 trials")
    view.event(state, "trial 0000 started")
    view.changed(state)
    view.event(state, "trial 0001 started")
    assert users.seen == 3
    assert [record.message for record in caplog.records] == [
        "the progress of the sweep could not be shown; the sweep continues"
    ]


@pytest.mark.slow
def test_a_sweep_whose_progress_nobody_reads_any_more_ends_and_is_recorded_whole(tmp_path: Path) -> None:
    """As `python -m sweeps run ... 2>&1 | head`, whose reader ends after some lines."""
    process = start(
        tmp_path, "run", "conf=digits", "search.num_trials=3", *SHORT, NO_PREFLIGHT, "--name=unseen", "--json"
    )
    assert process.stderr is not None
    assert process.stdout is not None
    process.stderr.readline()
    process.stderr.close()
    with process.stdout:
        document = json.loads(process.stdout.read())
    assert process.wait() == 0
    done = Done(tmp_path, 0, "", document)
    assert document["counts"]["finished"] + document["counts"]["pruned"] == 3
    assert document["best"]["value"] > 0.5
    for trial in done.trials():
        steps = [point.step for point in done.client.get_metric_history(trial.info.run_id, "eval/accuracy")]
        assert steps == [*range(10, 10 * len(steps) + 1, 10)]
        assert steps
