"""A forecast in words, and which sweeps have one."""

from __future__ import annotations

import time
from dataclasses import replace

from records import sweep_record
from rich.console import Console

from sweeps.operations.serialization import read_record, write_record
from sweeps.report.forecast_text import describe_forecast, forecast_lines
from sweeps.report.page.document import render
from sweeps.report.report_data import ReportData
from sweeps.report.terminal_tables import print_sweep
from sweeps.tracking.forecast_record import Forecast, Interval

FORECAST = Forecast(
    at=0.0,
    wall_s=Interval(300, 500, 900),
    worker_hours=Interval(0.2, 0.3, 0.5),
)
RECORD = sweep_record(sweep="lora-1", status="running", counts={"finished": 3})


def test_a_forecast_is_a_sentence_about_the_cost_of_the_rest_or_about_what_is_missing() -> None:
    assert describe_forecast(FORECAST) == [
        "forecast: about 5m 00s to 15m 00s left; 0.2 to 0.5 worker-hours (80% intervals)",
    ]
    priced = replace(FORECAST, gpu_hours=Interval(1, 2, 3), cost=Interval(4, 5, 6))
    assert "1 to 3 GPU-hours; cost 4.00 to 6.00" in describe_forecast(priced)[0]
    missing = Forecast(at=0.0, missing=("no trial has ended yet",))
    assert describe_forecast(missing) == ["forecast: no trial has ended yet"]


def test_a_running_sweep_shows_the_time_that_is_left_now_and_an_interrupted_one_what_resuming_it_costs() -> None:
    running = replace(RECORD, forecast=replace(FORECAST, at=time.time() - 200))
    assert forecast_lines(running)[0].startswith("forecast: about 1m 40s to 11m 40s left")
    interrupted = replace(RECORD, status="interrupted", forecast=FORECAST)
    assert forecast_lines(interrupted)[0].startswith("when it is resumed: forecast: about 5m 00s to 15m 00s left")
    assert forecast_lines(RECORD) == []
    assert "forecast" not in RECORD.as_json()


def test_show_the_report_and_json_have_it() -> None:
    made = replace(RECORD, forecast=replace(FORECAST, at=time.time()))
    console = Console(width=200, record=True)
    print_sweep(made, console)
    assert "0.2 to 0.5 worker-hours (80% intervals)" in console.export_text()
    assert "0.2 to 0.5 worker-hours (80% intervals)" in render(ReportData(record=made), [])
    assert made.as_json()["forecast"]["worker_hours"] == {"low": 0.2, "middle": 0.3, "high": 0.5}
    assert read_record(write_record(made)) == made, "as a client of the service reads it"
