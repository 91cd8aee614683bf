"""A sweep's full record as JSON and back, so that a client prints the same output as a command line with access to the
store."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

from pydantic import TypeAdapter

from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.record import SweepRecord


def write_record(record: SweepRecord) -> bytes:
    """Write a record as JSON, without the password in the tracking URI; non-finite numbers become strings."""
    document = dataclasses.asdict(record)
    document["mlflow"]["tracking_uri"] = redact_uri(record.mlflow.tracking_uri)
    document["front"] = [trial.trial for trial in record.front]
    # pydantic reads these strings as numbers again.
    finite = json.loads(json.dumps(document), parse_constant=lambda name: str(float(name)))
    return json.dumps(finite).encode()


def read_record(text: bytes) -> SweepRecord:
    """Read the JSON of ``write_record``."""
    document = json.loads(text)
    by_id = {trial["trial"]: trial for trial in document["trials"]}
    document["front"] = [by_id[trial] for trial in document["front"]]
    return _adapter().validate_python(document)


@cache
def _adapter() -> TypeAdapter[SweepRecord]:
    return TypeAdapter(SweepRecord)
