"""The verb ``submit``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import PROGRAM, as_json, stdout, tracking_uri, verb
from sweeps.cli.output import print_json, say, typed
from sweeps.constants import TAG_DASHBOARD
from sweeps.errors import UserError
from sweeps.operations.local import Local

if TYPE_CHECKING:
    from sweeps.launch.submission import Submission, Target

TARGETS = ("ray", "slurm", "kuberay")


@verb("submit")
@click.argument("tokens", nargs=-1, metavar="conf=NAME|FILE.yaml [key=value ...]")
@click.option("--to", required=True, type=click.Choice(TARGETS), help="Kind of cluster; see docs/clusters.md.")
@click.option("--name", metavar="S", help="Name of the sweep; default: the config's name and the time.")
@click.option("--resume", "sweep", metavar="SWEEP", help="Continue this sweep there, instead of starting one.")
@click.option("--print", "is_printed", is_flag=True, help="Print what would be submitted, and submit nothing.")
@as_json
@tracking_uri
def submit(
    tokens: tuple[str, ...],
    to: Target,
    name: str | None,
    sweep: str | None,
    is_printed: bool,
    as_json: bool,
    tracking_uri: str | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Run a sweep on a cluster, where it goes on without this machine: python -m sweeps submit conf=digits --to kuberay

    The config is checked here. `list`, `show` and `stop` then work as for any sweep in the same MLflow store.
    """
    if (sweep is None) == (not tokens):
        raise click.UsageError("give conf=NAME, or --resume SWEEP, and not both")
    from sweeps.launch.submission import new_submission

    dashboard = None
    if sweep is None:
        submission = new_submission(tokens, config_dirs, name, typed(), to)
        if name is not None and not is_printed and not _is_in_place(to):  # a job of one's own may be repeated
            submission.check_is_new(to)
        tracking_uri = submission.config.tracking.uri
    else:
        submission, dashboard = _resumed(sweep, to, tracking_uri)
    if to == "ray":
        is_submitted = _to_ray(submission, dashboard, is_printed=is_printed, as_json=as_json)
    elif to == "slurm":
        is_submitted = _to_slurm(submission, is_printed=is_printed, as_json=as_json)
    else:
        is_submitted = _to_kuberay(submission, is_printed=is_printed, as_json=as_json)
    if is_submitted:
        _say_what_next(submission.name, to, tracking_uri)


def _is_in_place(to: Target) -> bool:
    """Whether the sweep runs on the nodes of the Slurm job that this process is part of."""
    from sweeps.launch.slurm import is_inside_job

    return to == "slurm" and is_inside_job()


def _resumed(sweep: str, to: Target, uri: str | None) -> tuple[Submission, str | None]:
    """Return a recorded sweep, and the address of the dashboard of the cluster on which it ran."""
    from sweeps.launch.submission import resumed_submission
    from sweeps.tracking.artifacts import recorded_composition
    from sweeps.tracking.uris import default_uri

    given = uri or default_uri()
    record = Local(given).record(sweep)
    composition = recorded_composition(record)
    if composition is None:
        raise UserError(f"{sweep}: its MLflow run does not have its config; continue it with `resume` on its machine")
    # The driver reads the same store: the copy of an object store is on this machine only.
    return resumed_submission(record, composition, to, given), record.tags.get(TAG_DASHBOARD)


def _to_ray(submission: Submission, dashboard: str | None, *, is_printed: bool, as_json: bool) -> bool:
    """Submit to Ray Jobs, or print the job; return whether it was submitted."""
    from sweeps.launch import ray_jobs

    job = ray_jobs.ray_job(submission, dashboard)
    if is_printed:
        print_json(job.as_json())
        return False
    ray_jobs.submit(job)
    log = f"ray job logs --address {job.address} --follow {job.submission_id}"
    about = {"job": job.submission_id, "address": job.address}
    _submitted(submission, about, f"job {job.submission_id}", log, as_json=as_json)
    return True


def _to_slurm(submission: Submission, *, is_printed: bool, as_json: bool) -> bool:
    from sweeps.launch import slurm

    if is_printed:
        script = slurm.batch_script(submission)
        if as_json:
            print_json({"sweep": submission.name, "script": script})
        else:
            stdout.out(script, end="", highlight=False)
        return False
    if _is_in_place("slurm"):
        say(f"{submission.name}: this is already a job of Slurm; it runs here, on the nodes of the job")
        sys.exit(slurm.run_in_place(submission))
    job, log = slurm.submit(submission)
    about = {"job": job, "log": str(log)}
    _submitted(submission, about, f"job {job} of Slurm", f"tail -F {shlex.quote(str(log))}", as_json=as_json)
    return True


def _to_kuberay(submission: Submission, *, is_printed: bool, as_json: bool) -> bool:
    from sweeps.launch import kuberay

    documents = kuberay.manifests(submission)
    if is_printed:
        if as_json:
            print_json(documents)
        else:
            stdout.out(kuberay.written(documents), end="", highlight=False)
        return False
    answer = kuberay.create(documents)
    job = documents[-1]["metadata"]
    log = f"kubectl logs --namespace {job['namespace']} --follow --selector job-name={job['name']}"
    _submitted(submission, {"job": job["name"], "namespace": job["namespace"]}, answer, log, as_json=as_json)
    return True


def _submitted(submission: Submission, job: dict[str, str], answer: str, log: str, *, as_json: bool) -> None:
    """Print what was submitted, and the command that shows its log."""
    if as_json:
        print_json({"sweep": submission.name, **job})
    else:
        stdout.print(submission.name, highlight=False)
    say(answer)
    say(f"log       {log}")


def _say_what_next(sweep: str, to: Target, uri: str | None) -> None:
    """Print the commands that can be typed next, here or on another machine.

    Args:
        sweep: Name of the submitted sweep.
        to: Kind of cluster.
        uri: The sweep's tracking store; None for the default one.
    """
    from sweeps.launch.submission import tracking_option

    where = "" if uri is None else tracking_option(uri)
    say(f"progress  {PROGRAM} show {sweep} --watch{where}")
    say(f"stop      {PROGRAM} stop {sweep}{where}")
    say(f"resume    {PROGRAM} submit --resume={sweep} --to={to}{where}, if it was stopped or lost its machine")
