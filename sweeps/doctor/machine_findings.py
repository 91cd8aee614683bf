"""Checks of the driver's own machine: Python, packages, the folder of sweeps, and the tracking store."""

from __future__ import annotations

import contextlib
import platform
import tempfile
import uuid
from collections.abc import Iterator
from functools import partial
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

from sweeps.config.tracking import Tracking
from sweeps.doctor.finding import Finding
from sweeps.doctor.node_state import installed_version
from sweeps.errors import TrackingUnreachable
from sweeps.storage.location import is_remote
from sweeps.storage.object_store import checked_store
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.client import artifact_location, connect, first_cause

DISTRIBUTION = "ray-sweeps"
EXPERIMENT = "sweeps-doctor"
"""MLflow experiment with the single run that the doctor writes to."""


def required() -> list[Requirement]:
    """Return the requirements of Sweeps without its extras, which every node must meet."""
    parsed = [Requirement(line) for line in requires(DISTRIBUTION) or []]
    return [each for each in parsed if each.marker is None or each.marker.evaluate({"extra": ""})]


def expected_versions() -> dict[str, str | None]:
    """Return the versions of Python and of the required packages in this process."""
    names = (DISTRIBUTION, *(each.name for each in required()))
    return {"python": platform.python_version(), **{name: installed_version(name) for name in names}}


def check_packages() -> Iterator[Finding]:
    """Yield the packages with versions that Sweeps was not tested with."""
    versions = expected_versions()
    wrong = False
    for each in required():
        found = versions[each.name]
        if found is None or not each.specifier.contains(found, prereleases=True):
            wrong = True
            fix = f"pip install '{each.name}{each.specifier}'"
            yield Finding(
                "packages", "failed", "", f"{each.name} {found or 'is missing'}, needed {each.specifier}", fix
            )
    if not wrong:
        names = ", ".join(f"{name} {versions[name]}" for name in ("python", DISTRIBUTION, "ray", "torch", "mlflow"))
        yield Finding("packages", "ok", "", names)


@contextlib.contextmanager
def marked(folder: str) -> Iterator[str]:
    """Write a file into the folder of sweeps that every node should see, and remove it at the end.

    Args:
        folder: Path or URI.

    Yields:
        The name of the file.

    Raises:
        OSError: The folder cannot be made or written; ``UserError`` if it is in an object store.
    """
    marker = f".doctor-{uuid.uuid4().hex}"
    if is_remote(folder):
        store = checked_store("output_dir", folder)
        store.write(marker, b"")
        remove = partial(store.remove, marker)
    else:
        file = Path(folder) / marker
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("", encoding="utf-8")
        remove = partial(file.unlink, missing_ok=True)
    try:
        yield marker
    finally:
        remove()


def check_tracking(tracking: Tracking) -> Iterator[Finding]:
    """Yield the finding whether the tracking store accepts a run, a metric and an artifact. Writes to the only run of
    the experiment ``sweeps-doctor``, which is created the first time."""
    address = redact_uri(tracking.uri)
    try:
        client = connect(tracking.uri)
    except TrackingUnreachable as error:
        yield Finding("tracking", "failed", "", str(error))
        return
    try:
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            number = client.create_experiment(EXPERIMENT, artifact_location(tracking.uri, EXPERIMENT))
        else:
            number = experiment.experiment_id
            if experiment.lifecycle_stage == "deleted":
                client.restore_experiment(number)
        runs = client.search_runs([number], max_results=1)
        run = (runs[0] if runs else client.create_run(number, run_name="doctor")).info.run_id
        client.log_metric(run, "checked", 1.0)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "doctor.txt"
            file.write_text("Written by `python -m sweeps doctor`.\n", encoding="utf-8")
            client.log_artifact(run, str(file))
    except Exception as error:  # noqa: BLE001 - whatever the store raises is what is to be found
        fix = "grant this user the permission to write, and check the server's artifact location and its disk"
        yield Finding("tracking", "failed", "", f"tracking.uri={address} cannot be written: {first_cause(error)}", fix)
        return
    yield Finding("tracking", "ok", "", f"{address} accepts runs, metrics and artifacts")
