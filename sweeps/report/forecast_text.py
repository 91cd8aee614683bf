"""Forecast of a sweep in words."""

from __future__ import annotations

import time

from sweeps.report.formatting import duration
from sweeps.tracking.forecast_record import LEVEL, Forecast
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.values import short


def forecast_lines(record: SweepRecord) -> list[str]:
    """Return the forecast of an unfinished sweep in sentences; empty for a finished one."""
    if record.forecast is None:
        return []
    if record.status != "running":
        return [f"when it is resumed: {line}" for line in describe_forecast(record.forecast)]
    return describe_forecast(record.forecast.after(time.time() - record.forecast.at))


def describe_forecast(forecast: Forecast) -> list[str]:
    """Return a forecast in sentences: the remaining cost, and what is unknown."""
    lines = []
    if forecast.wall_s is not None:
        texts = [time_left(forecast), *_amounts(forecast)]
        lines.append(f"forecast: {'; '.join(texts)} ({LEVEL:.0%} intervals)")
    return [*lines, *(f"forecast: {text}" for text in forecast.missing)]


def time_left(forecast: Forecast) -> str:
    """Return the time to the end: ``about 10m 00s to 20m 00s left``; an empty string while it is unknown."""
    if forecast.wall_s is None:
        return ""
    low, high = duration(forecast.wall_s.low), duration(forecast.wall_s.high)
    of_stage = "" if forecast.stage is None else f" of stage {forecast.stage}"
    return f"about {low if low == high else f'{low} to {high}'} left{of_stage}"


def _amounts(forecast: Forecast) -> list[str]:
    """GPU hours or worker hours, and the cost."""
    hours = forecast.gpu_hours or forecast.worker_hours
    kind = "GPU" if forecast.gpu_hours is not None else "worker"
    texts = [] if hours is None else [f"{short(hours.low)} to {short(hours.high)} {kind}-hours"]
    return texts if forecast.cost is None else [*texts, f"cost {forecast.cost.low:.2f} to {forecast.cost.high:.2f}"]
