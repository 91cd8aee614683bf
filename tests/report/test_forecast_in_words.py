"""A forecast in words, and which sweeps have one."""

from __future__ import annotations

import time
from dataclasses import replace

from rich.console import Console

from sweeps.operations.serialization import read_record, write_record
from sweeps.report.forecast_text import describe_forecast, forecast_lines
from sweeps.report.page.document import render
from sweeps.report.report_data import ReportData
from sweeps.report.terminal_tables import print_sweep
from sweeps.tracking.forecast_record import Forecast, Interval
from sweeps.tracking.record import MlflowIds, SweepRecord, SweepTime

FORECAST = Forecast(
    at=0.0,
    wall_s=Interval(300, 500, 900),
    worker_hours=Interval(0.2, 0.3, 0.5),
    metric="eval/loss",
    improvement=Interval(0, 0.0125, 0.04),
    chance=0.7,
)
RECORD = SweepRecord(
    sweep="lora-1",
    status="running",
    metrics=("eval/loss",),
    modes=("min",),
    counts={"finished": 3},
    front=[],
    mlflow=MlflowIds(tracking_uri="sqlite:///mlflow.db", experiment_id="1", run_id="r"),
    trials=[],
    time=SweepTime(),
    conf="digits",
    started=0.0,
)


def test_the_cost_of_the_rest_and_the_improvement_are_a_sentence_each() -> None:
    assert describe_forecast(FORECAST) == [
        "forecast: about 5m 00s to 15m 00s left; 0.2 to 0.5 worker-hours (80% intervals)",
        (
            "stopping now would probably give up 0.0125 of eval/loss (0 to 0.04); "
            "the best becomes better with a probability of 70%"
        ),
    ]
    priced = replace(FORECAST, gpu_hours=Interval(1, 2, 3), cost=Interval(4, 5, 6))
    assert "1 to 3 GPU-hours; cost 4.00 to 6.00" in describe_forecast(priced)[0]


def test_an_improvement_that_is_not_expected_is_said_to_be_nothing() -> None:
    none = replace(FORECAST, improvement=Interval(0, 0, 0), chance=0.0)
    assert describe_forecast(none)[1] == "stopping now would probably give up nothing"
    rare = replace(FORECAST, improvement=Interval(0, 0.002, 0), chance=0.17)
    assert describe_forecast(rare)[1] == (
        "stopping now would probably give up nothing; the best becomes better with a probability of 17%"
    )


def test_what_is_missing_is_said() -> None:
    assert describe_forecast(Forecast(at=0.0, missing=("no trial has ended yet",))) == [
        "forecast: no trial has ended yet"
    ]


def test_a_running_sweep_shows_the_time_that_is_left_now() -> None:
    made = replace(RECORD, forecast=replace(FORECAST, at=time.time() - 200))
    assert forecast_lines(made)[0].startswith("forecast: about 1m 40s to 11m 40s left")


def test_an_interrupted_sweep_shows_what_resuming_it_costs() -> None:
    made = replace(RECORD, status="interrupted", forecast=FORECAST)
    assert forecast_lines(made)[0].startswith("when it is resumed: forecast: about 5m 00s to 15m 00s left")


def test_a_sweep_without_one_shows_none() -> None:
    assert forecast_lines(RECORD) == []
    assert "forecast" not in RECORD.as_json()


def test_show_the_report_and_json_have_it() -> None:
    made = replace(RECORD, forecast=replace(FORECAST, at=time.time()))
    console = Console(width=200, record=True)
    print_sweep(made, console)
    assert "stopping now would probably give up 0.0125 of eval/loss" in console.export_text()
    assert "stopping now would probably give up 0.0125 of eval/loss" in render(ReportData(record=made), [])
    assert made.as_json()["forecast"]["improvement"] == {"low": 0, "middle": 0.0125, "high": 0.04}


def test_a_client_of_the_service_reads_the_same_forecast() -> None:
    made = replace(RECORD, forecast=FORECAST)
    assert read_record(write_record(made)) == made
