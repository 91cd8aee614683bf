"""Model of the trivial trial. If ``REPORT_STALLS`` names a file, workers write the duration of every report to it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from torch import nn

STALLS = "REPORT_STALLS"


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def _time_reports(file: Path) -> None:
    from sweeps.runtime.trial_reporter import BrokerReporter

    report = BrokerReporter.report

    def timed(self: BrokerReporter, *arguments: Any) -> None:
        began = time.perf_counter()
        report(self, *arguments)
        seconds = time.perf_counter() - began
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{seconds}\n")

    BrokerReporter.report = timed  # type: ignore[method-assign,assignment]


if STALLS in os.environ:
    _time_reports(Path(os.environ[STALLS]))
