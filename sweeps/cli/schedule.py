"""The verbs of ``schedule``: list, next, run, pause, resume, history, nights and export."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import PATH, app, as_json, of_service, server, stdout, verb
from sweeps.cli.output import print_json, print_result, run_and_show, say
from sweeps.cli.remote import submitted
from sweeps.cli.source import service_at
from sweeps.errors import ConfigError, UserError

if TYPE_CHECKING:
    from sweeps.operations.operations import Schedules
    from sweeps.service.schedules.definition import Definition


@app.group("schedule")
def schedule() -> None:
    """List the schedules in conf/schedule/, show their next firings, or fire one now; `serve` fires them on time."""


def _schedules(tokens: Sequence[str], server: str | None, config_dirs: Sequence[Path]) -> Schedules:
    """Return the schedules of a service, or those on this machine."""
    service = service_at(server, config_dir=config_dirs)
    if service is not None:
        return service

    from sweeps.service.schedules.local_schedules import LocalSchedules

    return LocalSchedules(tokens, config_dirs, say)


@verb("list", schedule)
@of_service
@as_json
@server
def list_schedules(tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """List the schedules with their last and next firings."""
    from sweeps.service.schedules.schedule_tables import print_schedules

    documents = _schedules(tokens, server, config_dirs).schedules()
    print_result(lambda: documents, partial(print_schedules, documents), as_json=as_json)


@verb("next", schedule)
@click.argument("words", nargs=-1, metavar="[NAME ...] [service=NAME] [database=URL]")
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=5, show_default=True, help="Number of firings.")
@as_json
@server
def next_firings(
    words: tuple[str, ...], count: int, as_json: bool, server: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Show the next firings of all schedules, or of some."""
    from sweeps.service.schedules.schedule_tables import print_coming

    names = [each for each in words if "=" not in each]
    schedules = _schedules([each for each in words if "=" in each], server, config_dirs)
    documents = schedules.firings(names, count)
    if as_json:
        print_json(documents)
        return
    disabled: list[str] = []
    if not documents or {*names} - {each["schedule"] for each in documents}:  # the state of all needs the database
        disabled = [each["name"] for each in schedules.schedules() if not each["enabled"]]
    print_coming(documents, [name for name in disabled if name in names or not names], stdout)


@verb("run", schedule)
@click.argument("name")
@of_service
@as_json
@server
def run(name: str, tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Fire a schedule now, in addition to the firings of its cron line.

    The sweep joins the queue of the service if one is running; otherwise it runs in this process.
    """
    service = service_at(server, config_dir=config_dirs)
    if service is not None:
        submitted(service, service.fire(name), detach=True, as_json=as_json)
        return
    from sweeps.service.schedules.local_schedules import LocalSchedules

    schedules = LocalSchedules(tokens, config_dirs, say)
    job, definition = schedules.fire(name), schedules.find(name)
    if job is not None and as_json:
        print_json(job.as_json())
    elif job is not None:
        say(f"{job.sweep} is in the queue of the service, as job {job.id}")
    if job is not None:
        return
    from sweeps.driver.run import run as run_plan

    say(
        "no service is running: the sweep runs here"
        + (", without the additions of its nights, which need a service" if definition.schedule.nights else "")
    )
    now = time.time()
    run_and_show(run_plan, definition.plan(now, definition.sweep_name(now)), as_json=as_json)


@verb("pause", schedule)
@click.argument("name")
@of_service
@server
def pause(name: str, tokens: tuple[str, ...], server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Pause a schedule: it does not fire until it is resumed."""
    _schedules(tokens, server, config_dirs).pause(name, is_paused=True)
    say(f"{name} is paused")


@verb("resume", schedule)
@click.argument("name")
@of_service
@server
def resume(name: str, tokens: tuple[str, ...], server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Let a paused schedule fire again; its sweep is checked first."""
    _schedules(tokens, server, config_dirs).pause(name, is_paused=False)
    say(f"{name} fires again")


@verb("history", schedule)
@click.argument("name")
@of_service
@as_json
@server
def history(
    name: str, tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Show the saved versions of a schedule, the newest first: who, when, and what differs."""
    from sweeps.service.schedules.schedule_tables import print_versions

    documents = _schedules(tokens, server, config_dirs).versions(name)
    print_result(lambda: documents, partial(print_versions, name, documents), as_json=as_json)


@verb("nights", schedule)
@click.argument("name")
@of_service
@as_json
@server
def nights(
    name: str, tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Show the results of a schedule's nights: values, champions, regressions."""
    from sweeps.service.schedules.schedule_tables import print_nights

    documents = _schedules(tokens, server, config_dirs).nights(name)
    print_result(lambda: documents, partial(print_nights, name, documents), as_json=as_json)


@verb("export", schedule)
@click.argument("name")
@of_service
@click.option(
    "--as",
    "kind",
    required=True,
    type=click.Choice(("cron", "systemd", "kubernetes", "kuberay")),
    help="Lines of a crontab, a systemd timer, a CronJob of Kubernetes, or a RayCronJob of KubeRay.",
)
@click.option("--output", metavar="DIR", type=PATH, help="Write files here; default: print to stdout.")
def export(name: str, tokens: tuple[str, ...], kind: str, output: Path | None, config_dirs: tuple[Path, ...]) -> None:
    """Write a schedule for another scheduler, where no `serve` runs; settings that the other scheduler lacks are
    printed.

    Kinds kubernetes and kuberay need the section cluster.kuberay in the sweep's config.
    """
    from sweeps.launch.timers import not_exported
    from sweeps.service.schedules.local_schedules import LocalSchedules

    definition = LocalSchedules(tokens, config_dirs, say).find(name)
    files = _exported(definition, kind, config_dirs)
    if output is None:
        stdout.out("".join(f"# {file}\n{text}" if len(files) > 1 else text for file, text in files.items()), end="")
    else:
        try:
            output.mkdir(parents=True, exist_ok=True)
            for file, text in files.items():
                (output / file).write_text(text, encoding="utf-8")
                say(str(output / file))
        except OSError as error:
            raise UserError(f"{error.filename or output}: cannot be written ({error.strerror})") from None
    for note in not_exported(definition.schedule, kind):
        say(f"not exported: {note}")


def _exported(definition: Definition, kind: str, config_dirs: Sequence[Path]) -> dict[str, str]:
    """Return the files of an exported schedule by name."""
    from sweeps.compose.hydra_composition import compose_sweep
    from sweeps.compose.search_path import ConfSearchPath
    from sweeps.launch import kuberay, timers
    from sweeps.launch.calendar import plain_fields
    from sweeps.launch.submission import new_submission

    schedule, overrides = definition.schedule, definition.overrides(time.time())
    if kind in ("cron", "systemd"):
        config = compose_sweep(schedule.conf, overrides, ConfSearchPath(definition.config_dirs)).config
        if kind == "systemd":
            return timers.systemd_units(schedule, config, config_dirs)
        return {f"sweeps-{schedule.name}.cron": timers.cron_lines(schedule, config, config_dirs)}
    if any("{due:" in override for override in schedule.overrides):
        raise ConfigError("overrides: {due:...} is known only when the schedule fires; export it as cron or systemd")
    tokens = [f"conf={schedule.conf}", *overrides]
    submission = new_submission(tokens, config_dirs, schedule.name, f"schedule export {schedule.name}", "kuberay")
    cron, zone = " ".join(plain_fields(schedule.cron)), schedule.timezone
    hours = None if schedule.window is None else schedule.window.hours
    if kind == "kuberay":
        documents = kuberay.manifests(submission, cron=cron, timezone=zone, hours=hours)
    else:
        replaces = schedule.overlap == "stop_old"
        documents = kuberay.cron_job(submission, cron, zone, replaces=replaces, hours=hours)
    return {f"sweeps-{schedule.name}.yaml": kuberay.written(documents)}
