"""Verbs with ``--server``: a service elsewhere does what is asked, and this terminal shows it."""

from __future__ import annotations

import io
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from sweeps.cli.app import EXIT_STATUS, stdout
from sweeps.cli.output import leave_with, load, print_json, say
from sweeps.errors import SweepsError, UnknownName, UserError

if TYPE_CHECKING:
    from sweeps.registry.register import RegisteredModel
    from sweeps.report.reproduction_result import Repeated
    from sweeps.service.client import Client
    from sweeps.tracking.record import SweepRecord

LOOK_EVERY_S = 1.0
STOPPED_WITHIN_S = 120.0


def client_of(server: str | None, **only_here: object) -> Client | None:
    """The service that is asked, if one is.

    Args:
        server: Its address.
        only_here: Options that only make sense without it, and what they were given.

    Raises:
        UsageError: Both were given.
    """
    if server is None:
        return None
    if given := [f"--{name.replace('_', '-')}" for name, value in only_here.items() if value]:
        raise click.UsageError(
            f"--server and {' and '.join(given)}: the service at {server} has its own; leave one out, or unset "
            "SWEEPS_SERVER"
        )
    from sweeps.service.client import Client

    return Client(server)


def reader_of(server: str | None, tracking_uri: str | None) -> Callable[[str], SweepRecord]:
    """Reads a sweep by its name: from a service, or from MLflow."""
    client = client_of(server, tracking_uri=tracking_uri)
    return client.record if client is not None else partial(load, tracking_uri=tracking_uri)


def plan(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Show what would be done."""
    if as_json:
        print_json(found["plan"])
    else:
        sys.stdout.write(found["text"])


def differences(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Say what is another now than it was in the run that would be repeated."""
    for line in found["text"].splitlines():
        say(line)
    if as_json:
        print_json(found["plan"])


def submitted(client: Client, job: Mapping[str, Any], *, detach: bool, as_json: bool) -> None:
    """Show what becomes of a job, and leave with the status that it would have had here."""
    if detach:
        if as_json:
            print_json({"sweep": job["sweep"], "job": job["id"]})
        else:
            stdout.print(job["sweep"], highlight=False)
            say(f"job {job['id']} of {client.server}")
        return
    say(f"{job['sweep']}: job {job['id']} of {client.server}; Ctrl-C leaves, and it goes on")
    follow(client, job, as_json=as_json)


def follow(client: Client, job: Mapping[str, Any], *, as_json: bool) -> NoReturn:
    """Show a job until it has ended."""
    from sweeps.errors import TrackingUnreachable
    from sweeps.report.watch import changes

    said: dict[str, str] = {}
    state, trouble = "", ""
    while True:
        try:
            job = client.job(job["id"])
            if job["state"] == "running":
                for line in changes(client.record(job["sweep"]), said):
                    say(line)
            trouble = ""
        except UnknownName:  # it has not begun yet
            pass
        except TrackingUnreachable as error:
            if str(error) != trouble:
                say(f"{error}; trying again")
            trouble = str(error)
        if job["state"] != state:
            state = job["state"]
            say(f"{job['sweep']}: {state}")
        if state not in ("queued", "running"):
            break
        time.sleep(LOOK_EVERY_S)
    _ended(client, job, as_json=as_json)


def _ended(client: Client, job: Mapping[str, Any], *, as_json: bool) -> NoReturn:
    if job["error"] is not None:
        raise SweepsError(job["error"])
    if job["state"] == "cancelled":
        raise UserError(f"{job['sweep']}: was taken out of the queue before it started")
    outcome = client.outcome(job["id"])
    record = client.record(job["sweep"])
    if job["verb"] == "reproduce" and outcome is not None:
        _show_repeated(record, outcome, as_json=as_json)
    if as_json:
        print_json(record.as_json() if outcome is None else outcome)
    else:
        from sweeps.report.tables import print_outcome

        print_outcome(record, stdout)
        if model := (outcome or {}).get("model"):
            say(f"registered: version {model['version']} of {model['name']}, as {model['uri']}")
    leave_with(record)


def _show_repeated(record: SweepRecord, outcome: Mapping[str, Any], *, as_json: bool) -> NoReturn:
    if as_json:
        print_json(outcome)
    else:
        from sweeps.report.reproduction_result import print_repeated

        stdout.print(f"{record.sweep} {record.status}", highlight=False)
        print_repeated([_repeated(each) for each in outcome["metrics"]], stdout)
    sys.exit(0 if outcome["equal"] else EXIT_STATUS["failed"])


def _repeated(document: Mapping[str, Any]) -> Repeated:
    from sweeps.report.reproduction_result import Repeated

    return Repeated.from_json(document)


def stop(client: Client, sweep: str, trial: str | None) -> SweepRecord:
    """End a sweep, or one of its trials, and wait for that."""
    client.ask(sweep, "stop", {} if trial is None else {"trial": trial})

    def has_ended(record: SweepRecord) -> bool:
        if trial is None:
            return record.status != "running"
        return all(each.state != "running" for each in record.trials if each.trial == trial.zfill(4))

    return _wait(lambda: client.record(sweep), has_ended, sweep)


def _wait(load: Callable[[], SweepRecord], has_ended: Callable[[SweepRecord], bool], sweep: str) -> SweepRecord:
    deadline = time.monotonic() + STOPPED_WITHIN_S
    while time.monotonic() < deadline:
        record = load()
        if has_ended(record):
            return record
        time.sleep(LOOK_EVERY_S)
    raise UserError(f"{sweep} is told to end, and has not within {STOPPED_WITHIN_S:.0f} s; see `sweeps show`")


def register(client: Client, sweep: str, trial: str, model: str, alias: str, *, merged: bool) -> RegisteredModel:
    """Make a trial's checkpoint a version in the registry of the service's MLflow."""
    from sweeps.registry.register import RegisteredModel

    body = {"model": model, "trial": trial, "alias": alias, "merged": merged}
    made = client.ask(sweep, "register", body)
    say(f"registered: version {made['version']} of {made['name']}, as {made['uri']}")
    return RegisteredModel(made["name"], made["version"], made["alias"])


def cleaned(found: Mapping[str, Any], *, dry_run: bool, as_json: bool) -> None:
    """Show what is gone, or would be."""
    if as_json:
        print_json(found["cleaning"])
        return
    sys.stdout.write(found["text"])
    if dry_run:
        stdout.print("Nothing was removed.")


def report(client: Client, sweep: str, output: Path | None) -> Path:
    """Let a report be made there, and fetch it; the page's path."""
    from sweeps.constants import REPORT_PAGE
    from sweeps.report.folder import make_folder

    folder = make_folder(output or Path(f"{sweep}-report"))
    packed = zipfile.ZipFile(io.BytesIO(client.report(sweep)))
    packed.extractall(folder)  # which keeps every name within the folder
    return folder / REPORT_PAGE


def run_body(tokens: Sequence[str], name: str | None) -> dict[str, Any]:
    """What was typed, as the service takes it.

    Raises:
        UserError: It does not say which sweep to run, or names a file that the service does not have.
    """
    confs = [token.removeprefix("conf=") for token in tokens if token.startswith("conf=")]
    if len(confs) != 1:
        raise UnknownName("say which sweep to run, once: conf=NAME; `python -m sweeps conf --server URL` lists them")
    if confs[0].endswith(".yaml"):
        raise UserError(
            f"conf={confs[0]}: the service runs its own configs, and no file of this machine; put it into one of the "
            "service's config_dirs"
        )
    overrides = [token for token in tokens if not token.startswith("conf=")]
    return {"conf": confs[0], "overrides": overrides, "name": name}
