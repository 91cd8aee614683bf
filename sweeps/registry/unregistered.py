"""The model version that a retraining still has to register, kept in a tag of its sweep for ``resume``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from sweeps.constants import TAG_UNREGISTERED
from sweeps.tracking.client import connect
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.values import read_tag


@dataclass(frozen=True)
class Unregistered:
    """A version to be registered when the retraining has finished."""

    name: str
    """Name of the registered model."""
    alias: str | None
    merged: bool
    """Whether LoRA adapters are merged into their base model."""

    def as_tag(self) -> dict[str, str]:
        """Return this version as a tag for the retraining's sweep."""
        return {TAG_UNREGISTERED: json.dumps(asdict(self))}


def unregistered(record: SweepRecord) -> Unregistered | None:
    """Return the version that a sweep still has to register; None if there is none."""
    return read_tag(record.tags.get(TAG_UNREGISTERED), lambda found: Unregistered(**found), None)


def mark_registered(record: SweepRecord) -> None:
    """Remove the tag of a sweep whose version is registered."""
    connect(record.mlflow.tracking_uri).delete_tag(record.mlflow.run_id, TAG_UNREGISTERED)
