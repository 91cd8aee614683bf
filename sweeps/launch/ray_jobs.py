"""Sweeps as jobs of a running Ray cluster: its job server receives the command of the driver and the code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sweeps.errors import ConfigError, UserError
from sweeps.launch.bundle import MAX_CODE
from sweeps.launch.submission import Submission, check_reachable
from sweeps.texts.uri_passwords import holds_password

ARCHIVE = "code.zip"
ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"
"""Environment variable with the address of the job server, which Ray's own commands also read."""


@dataclass(frozen=True)
class RayJob:
    """A job for a cluster's job server."""

    address: str
    """Address of the cluster's dashboard."""
    submission_id: str
    entrypoint: str
    submission: Submission

    def as_json(self) -> dict[str, Any]:
        """Return the job as ``--print`` shows it."""
        return {
            "address": self.address,
            "submission_id": self.submission_id,
            "entrypoint": self.entrypoint,
            "files": sorted(self.submission.bundle.files),
        }


def ray_job(submission: Submission, dashboard: str | None = None) -> RayJob:
    """Return the job of a sweep; Sweeps itself is added to its files. The dashboard is for when neither the config nor
    the environment has an address.

    Raises:
        UserError: No address is known, or the cluster cannot reach the sweep's stores.
    """
    config = submission.config
    given = config.cluster.address if config.cluster.address.startswith(("http://", "https://")) else None
    address = given or os.environ.get(ADDRESS_VARIABLE) or dashboard
    if not address:
        raise ConfigError(
            f"cluster.address={config.cluster.address}: is not the address of a cluster's dashboard; choose "
            f"cluster=ray cluster.address=http://HOST:8265, or set {ADDRESS_VARIABLE}"
        )
    check_reachable(config)
    if holds_password(config.tracking.uri):
        raise UserError(
            "tracking.uri: everybody who sees the cluster's jobs would see its password; set MLFLOW_TRACKING_URI, or "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, where the cluster is started, and give the address "
            "without it here"
        )
    submission.bundle.add_sweeps()
    return RayJob(address, submission.job_name, submission.command(), submission)


def submit(job: RayJob) -> None:
    """Upload the code and submit the job.

    Raises:
        UserError: The job server does not answer, or refuses the job.
    """
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    with TemporaryDirectory() as folder:
        advice = ", or put it into an image or onto storage that the nodes share"
        archive = job.submission.bundle.write(Path(folder, ARCHIVE), MAX_CODE, advice)
        try:
            client = JobSubmissionClient(job.address)
            client.submit_job(
                entrypoint=job.entrypoint,
                submission_id=job.submission_id,
                runtime_env={"working_dir": str(archive)},
                metadata={"sweep": job.submission.name},
            )
        except (AuthenticationError, OSError, RuntimeError, ValueError) as error:
            raise _refusal(job, error) from None


def _refusal(job: RayJob, error: Exception) -> UserError:
    # The job server answers with a traceback, which Ray follows by a period.
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" .")] or [type(error).__name__]
    failed = any(line.endswith("Traceback (most recent call last):") for line in lines)
    reason = lines[-1 if failed else 0]
    fix = "the cluster must have been started with ray[default], and RAY_AUTH_TOKEN must be the same here and there"
    if "already exists" in reason:
        fix = f"choose another --name, or `ray job delete --address {job.address} {job.submission_id}`"
    elif failed:
        fix = "the cluster's dashboard.log has more"
    return UserError(f"cluster.address={job.address}: its job server does not accept the job ({reason}); {fix}")
