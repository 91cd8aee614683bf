"""The verb ``submit``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import as_json, stdout, tracking_uri, verb
from sweeps.cli.output import print_json, say, typed

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
    else:
        submission, dashboard = _resumed(sweep, to, tracking_uri)
    if to == "ray":
        _to_ray(submission, dashboard, is_printed=is_printed, as_json=as_json)
    elif to == "slurm":
        _to_slurm(submission, is_printed=is_printed, as_json=as_json)
    else:
        _to_kuberay(submission, is_printed=is_printed, as_json=as_json)


def _resumed(sweep: str, to: Target, uri: str | None) -> tuple[Submission, str | None]:
    """Return a recorded sweep, and the address of the dashboard of the cluster on which it ran."""
    from sweeps.constants import TAG_DASHBOARD
    from sweeps.driver.reproduce import recorded_composition
    from sweeps.errors import UserError
    from sweeps.launch.submission import resumed_submission
    from sweeps.tracking import default_uri
    from sweeps.tracking.reader import load_sweep

    record = load_sweep(uri or default_uri(), sweep)
    composition = recorded_composition(record)
    if composition is None:
        raise UserError(f"{sweep}: its MLflow run does not have its config; continue it with `resume` on its machine")
    return resumed_submission(record, composition.config, to), record.tags.get(TAG_DASHBOARD)


def _to_ray(submission: Submission, dashboard: str | None, *, is_printed: bool, as_json: bool) -> None:
    from sweeps.launch import ray_jobs

    job = ray_jobs.ray_job(submission, dashboard)
    if is_printed:
        print_json(job.as_json())
        return
    ray_jobs.submit(job)
    answer = f"job {job.submission_id}; its log: ray job logs --address {job.address} --follow {job.submission_id}"
    _submitted(submission, {"job": job.submission_id, "address": job.address}, answer, as_json=as_json)


def _to_slurm(submission: Submission, *, is_printed: bool, as_json: bool) -> None:
    from sweeps.launch import slurm

    if is_printed:
        script = slurm.batch_script(submission)
        if as_json:
            print_json({"sweep": submission.name, "script": script})
        else:
            stdout.out(script, end="", highlight=False)
    elif slurm.is_inside_job():
        say(f"{submission.name}: this is a job of Slurm already; it runs here, on the nodes of the job")
        sys.exit(slurm.run_in_place(submission))
    else:
        job, log = slurm.submit(submission)
        _submitted(submission, {"job": job, "log": str(log)}, f"job {job} of Slurm; its log: {log}", as_json=as_json)


def _to_kuberay(submission: Submission, *, is_printed: bool, as_json: bool) -> None:
    from sweeps.launch import kuberay

    documents = kuberay.manifests(submission)
    if is_printed:
        if as_json:
            print_json(documents)
        else:
            stdout.out(kuberay.written(documents), end="", highlight=False)
        return
    answer = kuberay.apply(documents)
    job = documents[-1]["metadata"]
    _submitted(submission, {"job": job["name"], "namespace": job["namespace"]}, answer, as_json=as_json)
    say(f"its log: kubectl logs --namespace {job['namespace']} --follow --selector job-name={job['name']}")


def _submitted(submission: Submission, job: dict[str, str], answer: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"sweep": submission.name, **job})
    else:
        stdout.print(submission.name, highlight=False)
    say(answer)
