"""The verbs ``schedule list``, ``schedule next``, ``schedule run`` and ``schedule nights``."""

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
    from sweeps.service.schedules.tables import print_schedules

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
    from sweeps.service.schedules.tables import print_coming

    tokens, names = [each for each in words if "=" in each], [each for each in words if "=" not in each]
    client = client_of(server, config_dir=config_dirs)
    documents = _coming(tokens, names, count, config_dirs) if client is None else client.firings(names, count)
    if as_json:
        print_json(documents)
    else:
        print_coming(documents, stdout)


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


@verb("nights", schedule)
@click.argument("name")
@of_service
@as_json
@server
def nights(
    name: str, tokens: tuple[str, ...], as_json: bool, server: str | None, config_dirs: tuple[Path, ...]
) -> None:
    """Show the results of a schedule's nights: values, champions, regressions."""
    from sweeps.service.promotion.table import print_nights

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
    if as_json:
        print_json(job.as_json())
    else:
        say(f"{job.sweep} is in the queue of the service, as job {job.id}")
    return True


def _defined(tokens: Sequence[str], config_dirs: Sequence[Path]) -> tuple[Service, dict[str, Definition]]:
    from sweeps.compose.service import compose_service
    from sweeps.service.schedules.definition import load_definitions

    config = compose_service(tokens, config_dirs)
    folders = [*config_dirs, *(Path(each) for each in config.config_dirs)]
    return config, load_definitions(folders, time.time(), config.schedules, config.enable)


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
