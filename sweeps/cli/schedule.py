"""The verbs of ``schedule``: list, next, run, pause, resume, history, nights and export."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.app import app, as_json, server, stdout, verb
from sweeps.cli.output import print_json, run_and_exit, say
from sweeps.cli.remote import submitted
from sweeps.cli.source import client_of

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from sweeps.config.service import Service
    from sweeps.service.schedules.definition import Definition
    from sweeps.service.schedules.saved import SavedSchedules

of_service = click.argument("tokens", nargs=-1, metavar="[service=NAME] [database=URL]")


@app.group("schedule")
def schedule() -> None:
    """List the schedules in conf/schedule/, show their next firings, or fire one now; `serve` fires them on time."""


@verb("list", schedule)
@of_service
@as_json
@server
def list_schedules(tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """List the schedules with their last and next firings."""
    from sweeps.service.schedules.schedule_tables import print_schedules

    client = client_of(server, config_dir=config_dirs)
    documents = _states(tokens, config_dirs) if client is None else client.schedules()
    if as_json:
        print_json(documents)
    else:
        print_schedules(documents, stdout)


def _states(tokens: Sequence[str], config_dirs: Sequence[Path]) -> list[dict[str, Any]]:
    from sweeps.service.schedules.overview import states

    config, definitions = _defined(tokens, config_dirs)
    with _database(config) as engine:
        if engine is None:
            found = states(definitions, time.time())
        else:
            with engine.connect() as connection:
                found = states(definitions, time.time(), connection)
    return [each.as_json() for each in found]


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

    tokens, names = [each for each in words if "=" in each], [each for each in words if "=" not in each]
    client = client_of(server, config_dir=config_dirs)
    documents = _coming(tokens, names, count, config_dirs) if client is None else client.firings(names, count)
    if as_json:
        print_json(documents)
        return
    states = _states(tokens, config_dirs) if client is None else client.schedules()
    asked = names or ([] if documents else [each["name"] for each in states])
    print_coming(documents, [each["name"] for each in states if each["name"] in asked and not each["enabled"]], stdout)


def _coming(
    tokens: Sequence[str], names: Sequence[str], count: int, config_dirs: Sequence[Path]
) -> list[dict[str, Any]]:
    from sweeps.service.schedules.definition import find_definition
    from sweeps.service.schedules.overview import coming

    _, definitions = _defined(tokens, config_dirs)
    asked = [find_definition(definitions, name) for name in names or definitions]
    return [each.as_json() for each in islice(coming(asked, time.time()), count)]


@verb("run", schedule)
@click.argument("name")
@of_service
@as_json
@server
def run(name: str, tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Fire a schedule now, in addition to the firings of its cron line.

    The sweep joins the queue of the service if one is running; otherwise it runs in this process.
    """
    client = client_of(server, config_dir=config_dirs)
    if client is not None:
        submitted(client, client.fire(name), detach=True, as_json=as_json)
        return
    from sweeps.service.schedules.definition import find_definition

    config, definitions = _defined(tokens, config_dirs)
    definition = find_definition(definitions, name)
    with _database(config) as engine:
        queued = engine is not None and _queued(engine, config, definition, as_json=as_json)
    if queued:
        return
    from sweeps.driver.run import run as run_plan

    say(
        "no service is running: the sweep runs here"
        + (", without what its nights add, which needs a service" if definition.schedule.nights else "")
    )
    now = time.time()
    run_and_exit(run_plan, definition.plan(now, definition.sweep_name(now)), as_json=as_json)


@verb("pause", schedule)
@click.argument("name")
@of_service
@server
def pause(name: str, tokens: tuple[str, ...], server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Pause a schedule: it does not fire until it is resumed."""
    _set_paused(name, tokens, server, config_dirs, is_paused=True)


@verb("resume", schedule)
@click.argument("name")
@of_service
@server
def resume(name: str, tokens: tuple[str, ...], server: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Let a paused schedule fire again; its sweep is checked first."""
    _set_paused(name, tokens, server, config_dirs, is_paused=False)


def _set_paused(
    name: str, tokens: Sequence[str], server: str | None, config_dirs: tuple[Path, ...], *, is_paused: bool
) -> None:
    client = client_of(server, config_dir=config_dirs)
    if client is not None:
        client.pause(name, is_paused=is_paused)
    else:
        _save_paused(name, tokens, config_dirs, is_paused=is_paused)
    say(f"{name} {'is paused' if is_paused else 'fires again'}")


def _save_paused(name: str, tokens: Sequence[str], config_dirs: Sequence[Path], *, is_paused: bool) -> None:
    """Save the schedule beside the operator's file, where a running service sees it."""
    from dataclasses import replace
    from getpass import getuser

    from sweeps.errors import ConfigError
    from sweeps.service.schedules.definition import find_definition
    from sweeps.service.schedules.saved import Owner
    from sweeps.service.schedules.schedule_file import enabled_text

    config, definitions = _defined(tokens, config_dirs)
    saved, definition = _saved(config), find_definition(definitions, name)
    tag, text = saved.tag(name), saved.text(name)
    if definition.schedule.enabled != is_paused:
        raise ConfigError(f"{name} is {'paused' if is_paused else 'not paused'} already")
    if not is_paused:
        replace(definition, schedule=replace(definition.schedule, enabled=True)).check(time.time())
    changed = enabled_text(definition, text, is_enabled=not is_paused)
    action, owner = "paused" if is_paused else "resumed", Owner(definition.schedule.user, definition.schedule.project)
    operators = [each.name for each in definitions.values() if not each.is_saved or each.replaces is not None]
    named: dict[str, Any] = {"user": getuser(), "now": time.time(), "action": action, "owner": owner}
    saved.write(name, changed, tag=tag, operators=operators, **named)
    _note(config, f"schedule {action}", schedule=name)


def _note(config: Service, action: str, **about: str | int) -> None:
    """Add an entry to the audit log."""
    from getpass import getuser

    from sweeps.service.audit import Audit
    from sweeps.service.auth.principal import Principal
    from sweeps.service.clock import WallClock

    audit = Audit(Path(config.output_dir).expanduser().absolute(), WallClock())
    audit.note(Principal(getuser(), "admin"), action, **about)


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

    client = client_of(server, config_dir=config_dirs)
    documents = _versions(name, tokens, config_dirs) if client is None else client.versions(name)
    if as_json:
        print_json(documents)
    else:
        print_versions(name, documents, stdout)


def _versions(name: str, tokens: Sequence[str], config_dirs: Sequence[Path]) -> list[dict[str, Any]]:
    from sweeps.compose.service import compose_service
    from sweeps.service.schedules.definition import find_definition

    found = _saved(compose_service(tokens, config_dirs)).versions(name)
    if not found:  # only then may its name be unknown
        find_definition(_defined(tokens, config_dirs)[1], name)
    return [vars(each) for each in found]


@verb("nights", schedule)
@click.argument("name")
@of_service
@as_json
@server
def nights(
    name: str, tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Show the results of a schedule's nights: values, champions, regressions."""
    from sweeps.service.promotion.nights_table import print_nights

    client = client_of(server, config_dir=config_dirs)
    documents = _nights(name, tokens, config_dirs) if client is None else client.nights(name)
    if as_json:
        print_json(documents)
    else:
        print_nights(name, documents, stdout)


def _nights(name: str, tokens: Sequence[str], config_dirs: Sequence[Path]) -> list[dict[str, Any]]:
    from sweeps.compose.service import compose_service
    from sweeps.service.promotion.night import of_schedule
    from sweeps.service.schedules.definition import find_definition

    with _database(compose_service(tokens, config_dirs)) as engine:
        if engine is None:
            found = []
        else:
            with engine.connect() as connection:
                found = [night.as_json() for night in of_schedule(connection, name)]
    if not found:  # a schedule that was removed can still have nights; only then may its name be unknown
        find_definition(_defined(tokens, config_dirs)[1], name)
    return found


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
@click.option(
    "--output", metavar="DIR", type=click.Path(path_type=Path), help="Write files here; default: print to stdout."
)
def export(name: str, tokens: tuple[str, ...], kind: str, output: Path | None, config_dirs: tuple[Path, ...]) -> None:
    """Write a schedule for another scheduler, where no `serve` runs; what that one cannot do is printed.

    The last two need the section cluster.kuberay in the sweep's config.
    """
    from sweeps.launch.timers import not_exported
    from sweeps.service.schedules.definition import find_definition

    definition = find_definition(_defined(tokens, config_dirs)[1], name)
    files = _exported(definition, kind, config_dirs)
    if output is None:
        stdout.out("".join(f"# {file}\n{text}" if len(files) > 1 else text for file, text in files.items()), end="")
    else:
        output.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (output / file).write_text(text, encoding="utf-8")
            say(str(output / file))
    for note in not_exported(definition.schedule, kind):
        say(f"not exported: {note}")


def _exported(definition: Definition, kind: str, config_dirs: Sequence[Path]) -> dict[str, str]:
    """Return the files of an exported schedule by name."""
    from sweeps.errors import ConfigError
    from sweeps.launch import kuberay, timers
    from sweeps.launch.calendar import plain_fields
    from sweeps.launch.submission import new_submission

    schedule = definition.schedule
    if kind == "cron":
        return {f"sweeps-{schedule.name}.cron": timers.cron_lines(schedule, config_dirs)}
    if kind == "systemd":
        return timers.systemd_units(schedule, config_dirs)
    if any("{due:" in override for override in schedule.overrides):
        raise ConfigError("overrides: {due:...} is known only when the schedule fires; export it as cron or systemd")
    tokens = [f"conf={schedule.conf}", *definition.overrides(time.time())]
    submission = new_submission(tokens, config_dirs, schedule.name, f"schedule export {schedule.name}", "kuberay")
    cron = " ".join(plain_fields(schedule.cron))
    if kind == "kuberay":
        documents = kuberay.manifests(submission, cron=cron, timezone=schedule.timezone)
    else:
        replaces = schedule.overlap == "stop_old"
        documents = kuberay.cron_job(submission, cron, schedule.timezone, replaces=replaces)
    return {f"sweeps-{schedule.name}.yaml": kuberay.written(documents)}


def _queued(engine: Engine, config: Service, definition: Definition, *, as_json: bool) -> bool:
    """Add the sweep to the queue of the service, and return whether one is running."""
    from sweeps.service.database.engine import writing
    from sweeps.service.queue.heartbeat import is_served
    from sweeps.service.schedules.firing import fire_now

    now = time.time()
    with writing(engine) as connection:
        if not is_served(connection, now - config.queue.dead_after_s):
            return False
        job = fire_now(connection, definition, now)
    _note(config, "schedule fired", job=job.id, sweep=job.sweep, schedule=definition.name)
    if as_json:
        print_json(job.as_json())
    else:
        say(f"{job.sweep} is in the queue of the service, as job {job.id}")
    return True


def _defined(tokens: Sequence[str], config_dirs: Sequence[Path]) -> tuple[Service, dict[str, Definition]]:
    """Return the service's config and its schedules: the operator's, and those that are saved through the service."""
    from functools import partial

    from sweeps.compose.service import compose_service
    from sweeps.service.schedules.definition import load_definitions
    from sweeps.service.schedules.saved import define_saved, with_saved

    config, now = compose_service(tokens, config_dirs), time.time()
    folders = [*config_dirs, *(Path(each) for each in config.config_dirs)]
    own = load_definitions(folders, now, config.schedules, config.enable)
    definitions, mistakes = with_saved(own, _saved(config), partial(define_saved, own, folders, ()), now)
    for mistake in mistakes.values():
        say(f"left out: {mistake}")
    return config, definitions


def _saved(config: Service) -> SavedSchedules:
    from sweeps.service.schedules.saved import FOLDER, SavedSchedules

    return SavedSchedules(Path(config.output_dir).expanduser().absolute() / FOLDER)


@contextlib.contextmanager
def _database(config: Service) -> Iterator[Engine | None]:
    """Open the service's database if it exists; reading must not create one."""
    from sweeps.service.database.engine import database_exists, open_database

    if not database_exists(config.database):
        yield None
        return
    engine = open_database(config.database)
    try:
        yield engine
    finally:
        engine.dispose()
