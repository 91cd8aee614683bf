"""A sweep's whole record as JSON, and back: so that a client prints what the terminal beside the store prints."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from sweeps.redact import redact_uri
from sweeps.tracking.record import SweepRecord


def write_record(record: SweepRecord) -> bytes:
    """Without the password in the store's address. JSON has no numbers that are not finite: they become texts."""
    document = dataclasses.asdict(record)
    document["mlflow"]["tracking_uri"] = redact_uri(record.mlflow.tracking_uri)
    document["front"] = [trial.trial for trial in record.front]
    return json.dumps(_plain(document), allow_nan=False).encode()


def read_record(text: bytes) -> SweepRecord:
    """What ``write_record`` wrote."""
    document = json.loads(text)
    by_id = {trial["trial"]: trial for trial in document["trials"]}
    document["front"] = [by_id[trial] for trial in document["front"]]
    return _adapter().validate_python(document)


@cache
def _adapter() -> TypeAdapter[SweepRecord]:
    return TypeAdapter(SweepRecord)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # pydantic reads it as the number where one belongs
    return value
