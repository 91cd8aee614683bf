"""Keeps with a sweep where it comes from, and reads it back."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeps import constants
from sweeps.plan.plan import Plan
from sweeps.provenance.provenance import Provenance, Training, collect_provenance, requirements
from sweeps.provenance.secrets import redacted_source
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config import lookup_in
from sweeps.versions import Format

if TYPE_CHECKING:
    from sweeps.tracking.recorder import Recorder

COMPOSITION = Format(())
"""The versions of ``constants.COMPOSITION_ARTIFACT``."""

logger = logging.getLogger(__name__)


def record_origin(plan: Plan, recorder: Recorder) -> threading.Thread:
    """Look at code, packages, data and machine, and put them into the parent run, on a thread that is returned."""
    thread = threading.Thread(target=_record, args=(plan, recorder), name="origin", daemon=True)
    thread.start()
    return thread


def present_origin(plan: Plan) -> Provenance:
    """Where a sweep would come from, were it started now."""
    return collect_provenance(plan.command, plan.config.seed, trainings(plan))[0]


def recorded_origin(record: SweepRecord) -> Provenance | None:
    """Where a sweep came from; nothing if it was recorded by an earlier version, or was killed at its start."""
    text = read_text(record.mlflow.tracking_uri, record.mlflow.run_id, constants.ORIGIN_ARTIFACT)
    return None if text is None else Provenance.from_json(text)


def trainings(plan: Plan) -> Iterator[Training]:
    """One training for every kind of data that the space can make."""
    yield plan.config.training()
    for path, _, point in plan.space.corners(lookup_in(plan.composition)):
        if path.partition(".")[0] in ("data", "task"):
            yield plan.composition.trial(point).training()


def _record(plan: Plan, recorder: Recorder) -> None:
    try:
        origin, diff = collect_provenance(plan.command, plan.config.seed, trainings(plan))
        files = {
            constants.ORIGIN_ARTIFACT: origin.as_json(),
            constants.PACKAGES_ARTIFACT: requirements(origin),
            constants.COMPOSITION_ARTIFACT: redacted_source(
                json.dumps(COMPOSITION.stamped(plan.composition.as_json()), indent=1)
            ),
        }
        tags = {constants.TAG_SEED: str(origin.seed), constants.TAG_CHANGES: "true" if diff else "false"}
        if diff:
            files[constants.CHANGES_ARTIFACT] = diff
        if origin.data_fingerprint is not None:
            tags[constants.TAG_DATA] = origin.data_fingerprint
        if origin.branch:
            tags["mlflow.source.git.branch"] = origin.branch
        if origin.remote:
            tags["mlflow.source.git.repoURL"] = origin.remote
        recorder.attach(files, tags)
    except Exception as error:  # noqa: BLE001 - a sweep is whole without it
        logger.warning("where %s comes from could not be recorded: %s", plan.name, error)
