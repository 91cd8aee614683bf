"""The live table: what a person sees while a sweep runs."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sweeps.config.search import Stop
from sweeps.monitor import Monitor
from sweeps.report.live import duration, progress_table
from sweeps.trial_status import TrialStatus


def monitor() -> Monitor:
    search = SimpleNamespace(metrics=("eval/loss",), modes=("min",), limits={}, stop=Stop(), num_trials=16)
    composition: Any = SimpleNamespace(config=SimpleNamespace(search=search))
    nobody: Any = None
    made = Monitor("lora-1", composition, nobody, nobody, concurrent=1)
    long = {f"model.some_long_name_{index}": index for index in range(12)}
    made.trials = {
        "0000": TrialStatus("0000", long, "finished", 1, step=80, last_step=80, values=(1.5,), latest=1.52),
        "0001": TrialStatus(
            "0001", long, "running", 1, step=24, last_step=80, values=(1.6,), latest=1.61, speed="26,000 tokens/s"
        ),
    }
    return made


@pytest.mark.parametrize("width", [80, 150])
def test_steps_metric_and_speed_stay_readable_beside_long_parameters(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    console.print(progress_table(monitor(), ["trial 0001 started"]))
    out = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("1/16 trials", "eval/loss", "0001", "running", "24/80", "1.61", "26,000 tokens/s", "80/80"):
        assert word in out
    assert "best eval/loss 1.5: trial 0000" in out
    assert all(len(line.rstrip()) <= width for line in out.splitlines())


def test_durations_are_short() -> None:
    assert [duration(seconds) for seconds in (0, 59, 75, 3_700)] == ["0s", "59s", "1m 15s", "1h 01m"]
