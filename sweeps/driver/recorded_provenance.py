"""Provenance of a sweep (its code, packages, data and machine), recorded with the sweep and read back."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sweeps import constants
from sweeps.plan.plan import Plan
from sweeps.provenance.provenance import Provenance, Training, collect_provenance, requirements
from sweeps.tracking.artifacts import COMPOSITION, read_text
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config_checks import lookup_in

if TYPE_CHECKING:
    from sweeps.tracking.recorder import Recorder

logger = logging.getLogger(__name__)


def record_provenance(plan: Plan, recorder: Recorder) -> threading.Thread:
    """Start a thread that collects the provenance and records it on the parent run; return the thread."""
    thread = threading.Thread(target=_record, args=(plan, recorder), name="provenance", daemon=True)
    thread.start()
    return thread


def record_composition(plan: Plan, recorder: Recorder) -> None:
    """Record the composition from which the sweep can be run again, with its values unchanged; of an extended sweep,
    once more."""
    text = json.dumps(COMPOSITION.stamped(plan.composition.as_json()), indent=1)
    recorder.attach({constants.COMPOSITION_ARTIFACT: text}, {})


def present_provenance(plan: Plan) -> Provenance:
    """Return the provenance that a sweep would have if it were started now."""
    return collect_provenance(plan.command, plan.config.seed)[0].with_data(trainings(plan))


def recorded_provenance(record: SweepRecord) -> Provenance | None:
    """Return a sweep's recorded provenance; None if an earlier version recorded the sweep, or it was killed at its
    start."""
    text = read_text(record.mlflow.tracking_uri, record.mlflow.run_id, constants.ORIGIN_ARTIFACT)
    return None if text is None else Provenance.from_json(text)


def trainings(plan: Plan) -> Iterator[Training]:
    """Yield training configs that cover all choices of data and task in the space."""
    yield plan.config.training()
    for path, _, point in plan.space.corners(lookup_in(plan.composition)):
        if path.partition(".")[0] in ("data", "task"):
            yield plan.composition.trial(point).training()


def _record(plan: Plan, recorder: Recorder) -> None:
    try:
        record_composition(plan, recorder)
        provenance, diff = collect_provenance(plan.command, plan.config.seed)
        files = {
            constants.ORIGIN_ARTIFACT: provenance.as_json(),
            constants.PACKAGES_ARTIFACT: requirements(provenance),
        }
        tags = {constants.TAG_SEED: str(provenance.seed), constants.TAG_CHANGES: "true" if diff else "false"}
        if diff:
            files[constants.CHANGES_ARTIFACT] = diff
        if provenance.branch:
            tags["mlflow.source.git.branch"] = provenance.branch
        if provenance.remote:
            tags["mlflow.source.git.repoURL"] = provenance.remote
        recorder.attach(files, tags)
        provenance = provenance.with_data(trainings(plan))  # large data may take longer than the sweep
        digest = provenance.data_fingerprint
        recorder.attach(
            {constants.ORIGIN_ARTIFACT: provenance.as_json()}, {} if digest is None else {constants.TAG_DATA: digest}
        )
    except Exception as error:  # noqa: BLE001 - a sweep is complete without it
        logger.warning("the provenance of %s could not be recorded completely: %s", plan.name, error)
