"""Provenance of a sweep (its code, packages, data and machine), recorded with the sweep and read back."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sweeps import constants
from sweeps.compose import Composition
from sweeps.errors import ConfigError
from sweeps.files.versions import NewerVersion
from sweeps.plan.plan import Plan
from sweeps.provenance.provenance import Provenance, Training, collect_provenance, requirements
from sweeps.space.space import Space
from sweeps.tracking.artifacts import COMPOSITION, read_text
from sweeps.tracking.record import SweepRecord
from sweeps.validate.config_checks import Approve, check_sweep, lookup_in

if TYPE_CHECKING:
    from sweeps.tracking.recorder import Recorder

logger = logging.getLogger(__name__)


def record_provenance(plan: Plan, recorder: Recorder) -> threading.Thread:
    """Start a thread that collects the provenance and records it on the parent run; return the thread."""
    thread = threading.Thread(target=_record, args=(plan, recorder), name="provenance", daemon=True)
    thread.start()
    return thread


def record_composition(plan: Plan, recorder: Recorder) -> None:
    """Record the composition, with its values unchanged, so that the sweep can be run again; repeated when the sweep is
    extended."""
    text = json.dumps(COMPOSITION.stamped(plan.composition.as_json()), indent=1)
    recorder.attach({constants.COMPOSITION_ARTIFACT: text}, {})


def present_provenance(
    plan: Plan, whole: Callable[[], Composition | None] = lambda: None, approve: Approve | None = None
) -> Provenance:
    """Return the provenance that a sweep would have if it were started now.

    Args:
        plan: The sweep.
        whole: Reads the sweep of which it repeats a trial, if that is known. The digest of a user's code includes the
            arguments of the sweep's trainings, which differ from those of the trial alone.
        approve: See ``check_sweep``.
    """
    provenance = collect_provenance(plan.command, plan.config.seed)[0]
    with contextlib.suppress(ConfigError, NewerVersion):  # another release may have accepted what this one refuses
        if (composition := whole()) is not None:
            space = check_sweep(composition, approve, is_new=False)
            return provenance.with_data(trainings(composition, space), plan.config.training())
    return provenance.with_data(trainings(plan.composition, plan.space))


def recorded_provenance(record: SweepRecord) -> Provenance | None:
    """Return a sweep's recorded provenance; None if an earlier version recorded the sweep, or it was killed at its
    start."""
    text = read_text(record.mlflow.tracking_uri, record.mlflow.run_id, constants.ORIGIN_ARTIFACT)
    return None if text is None else Provenance.from_json(text)


def trainings(composition: Composition, space: Space) -> Iterator[Training]:
    """Yield training configs that cover all choices of data and task in the space."""
    yield composition.config.training()
    for path, _, point in space.corners(lookup_in(composition)):
        if path.partition(".")[0] in ("data", "task"):
            yield composition.trial(point).training()


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
        # Reading large data may take longer than the sweep.
        provenance = provenance.with_data(trainings(plan.composition, plan.space))
        digest = provenance.data_fingerprint
        recorder.attach(
            {constants.ORIGIN_ARTIFACT: provenance.as_json()}, {} if digest is None else {constants.TAG_DATA: digest}
        )
    except Exception as error:  # noqa: BLE001 - a sweep is complete without it
        logger.warning("the provenance of %s could not be recorded completely: %s", plan.name, error)
