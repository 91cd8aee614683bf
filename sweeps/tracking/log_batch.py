"""Call that writes many metric values, parameters and tags of a run at once.

A server gets the call directly as JSON. MLflow's client would convert each value to an object, a message in Protocol
Buffers, text, and JSON, which takes longer than the server's answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sweeps.compat.mlflow import post

if TYPE_CHECKING:
    from mlflow import MlflowClient

ENDPOINT = "/api/2.0/mlflow/runs/log-batch"


class MetricValue(NamedTuple):
    """Value of a metric at a step."""

    name: str
    value: float
    timestamp_ms: int
    step: int


def log_batch(
    client: MlflowClient,
    run_id: str,
    points: Sequence[MetricValue] = (),
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Write metric values, parameters and tags of a run in one call.

    Raises:
        Exception: Whatever ``MlflowClient.log_batch`` raises.
    """
    if client.tracking_uri.startswith("http"):
        body: dict[str, Any] = {
            "run_id": run_id,
            "metrics": [
                {"key": name, "value": _number(value), "timestamp": timestamp_ms, "step": step}
                for name, value, timestamp_ms, step in points
            ],
            "params": [{"key": name, "value": text} for name, text in (params or {}).items()],
            "tags": [{"key": name, "value": text} for name, text in (tags or {}).items()],
        }
        post(client.tracking_uri, ENDPOINT, {name: content for name, content in body.items() if content})
        return
    from mlflow.entities import Metric, Param, RunTag

    client.log_batch(
        run_id,
        metrics=[Metric(*point) for point in points],
        params=[Param(name, text) for name, text in (params or {}).items()],
        tags=[RunTag(name, text) for name, text in (tags or {}).items()],
    )


def _number(value: float) -> float | str:
    """Return a number for the JSON form of Protocol Buffers, in which infinities and NaN are strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
