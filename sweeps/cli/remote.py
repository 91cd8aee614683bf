"""Verbs with ``--server``: a service does the work, and this process prints the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.cli.app import stdout
from sweeps.cli.exit_status import NO_SUCCESS, exits_with
from sweeps.cli.output import print_json, print_result, say, show_outcome
from sweeps.errors import SweepsError, TrackingUnreachable, UnknownName, UserError

if TYPE_CHECKING:
    from sweeps.operations.remote import Remote
    from sweeps.tracking.record import SweepRecord

POLL_EVERY_S = 1.0


def plan(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a plan."""
    print_result(lambda: found["plan"], lambda _: sys.stdout.write(found["text"]), as_json=as_json)


def differences(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the differences between now and the recorded run."""
    for line in found["text"].splitlines():
        say(line)
    if as_json:
        print_json(found["plan"])


def submitted(service: Remote, job: Mapping[str, Any], *, detach: bool, as_json: bool) -> None:
    """Follow a submitted job and exit with the status that ``run`` would have had here; or only print the job's
    name."""
    if detach:
        if as_json:
            print_json({"sweep": job["sweep"], "job": job["id"]})
        else:
            stdout.print(job["sweep"], highlight=False)
            say(f"job {job['id']} of {service.address}")
        return
    say(f"{job['sweep']}: job {job['id']} of {service.address}; it continues after Ctrl-C")
    follow(service, job, as_json=as_json)


def follow(service: Remote, job: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the progress of a job until it has ended, and its outcome."""
    from sweeps.report.watch import changes

    printed: dict[str, str] = {}
    state, problem = "", ""
    while True:
        try:
            job = service.get(f"jobs/{job['id']}")
            if job["state"] != state:
                state = job["state"]
                say(f"{job['sweep']}: {state}")
            if state == "running":
                for line in changes(service.record(job["sweep"]), printed):
                    say(line)
            elif state != "queued" and _print_outcome(service, job, as_json=as_json):
                return
            problem = ""
        except UnknownName:
            if state != "running":
                raise
        except TrackingUnreachable as error:
            if str(error) != problem:
                say(f"{error}; trying again")
            problem = str(error)
        time.sleep(POLL_EVERY_S)


def _print_outcome(service: Remote, job: Mapping[str, Any], *, as_json: bool) -> bool:
    """Print the outcome of an ended job; return False if the service still has a record from before the end."""
    if job["error"] is not None and job["state"] != "stopped":
        raise SweepsError(job["error"])
    if job["state"] == "cancelled":
        raise UserError(f"{job['sweep']}: was removed from the queue before it started")
    outcome = service.get(f"jobs/{job['id']}/outcome")["document"] or {}
    record = service.record(job["sweep"])
    if record.status == "running":
        return False
    if job["error"] is not None:
        say(f"{job['sweep']}: {job['error']}")
    if job["verb"] == "reproduce":
        _print_reproduction(record, outcome, job["request"]["sweep"], as_json=as_json)
        return True
    if not as_json and (model := outcome.get("model")):
        say(f"registered: version {model['version']} of {model['name']}, as {model['uri']}")
    show_outcome(record, as_json=as_json, document=outcome or record.as_json())
    return True


def _print_reproduction(record: SweepRecord, outcome: Mapping[str, Any], original: str, *, as_json: bool) -> None:
    if "equal" not in outcome:
        raise SweepsError(
            f"{record.sweep} is {record.status}, and was not compared with {original}, since its driver was restarted "
            f"or ran on another machine; `python -m sweeps compare {original} {record.sweep}` compares them"
        )
    if not outcome["equal"]:
        exits_with(NO_SUCCESS)
    if as_json:
        print_json(outcome)
    else:
        from sweeps.report.reproduction_result import Repeated, print_repeated

        stdout.print(f"{record.sweep} {record.status}", highlight=False)
        print_repeated([Repeated.from_json(each) for each in outcome["metrics"]], stdout)


def run_body(tokens: Sequence[str], name: str | None) -> dict[str, Any]:
    """Return the body of a request that runs a sweep.

    Raises:
        UserError: No config is named, or it is a local file.
    """
    confs = [token.removeprefix("conf=") for token in tokens if token.startswith("conf=")]
    if len(confs) != 1:
        raise UnknownName("say which sweep to run, once: conf=NAME; `python -m sweeps conf --server URL` lists them")
    if confs[0].endswith(".yaml"):
        raise UserError(
            f"conf={confs[0]}: the service cannot read files of this machine; put it into one of the service's "
            "config_dirs"
        )
    overrides = [token for token in tokens if not token.startswith("conf=")]
    return {"conf": confs[0], "overrides": overrides, "name": name}
