"""Schedules on the machine of the service, read from its files and its database; the service need not run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from sweeps.compose.service_config import compose_service
from sweeps.errors import SweepsError
from sweeps.operations.operations import Schedules
from sweeps.provenance.machine import user
from sweeps.service.audit import note_of_operator
from sweeps.service.database import tables
from sweeps.service.database.engine import database_exists, opened_database, writing
from sweeps.service.queue.heartbeat import is_served
from sweeps.service.schedules.definition import Definition, find_definition
from sweeps.service.schedules.saved import FOLDER, Owner, SavedSchedules, fired, load_own, with_saved

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from sweeps.service.queue.jobs import Job


class LocalSchedules(Schedules):
    """The operator's schedules, and those that are saved through the service."""

    def __init__(self, tokens: Sequence[str], config_dirs: Sequence[Path], tell: Callable[[str], None]) -> None:
        """Read the config of the service from ``service=NAME`` and overrides. ``tell`` receives a message about each
        schedule that is left out because of mistakes."""
        self._config, self._tell = compose_service(tokens, config_dirs), tell
        self._folders = [*config_dirs, *(Path(each) for each in self._config.config_dirs)]
        self._saved = SavedSchedules(self._config.folder / FOLDER)

    @cached_property
    def definitions(self) -> dict[str, Definition]:
        """The schedules that the service fires, by name."""
        now = time.time()
        own = load_own(self._config, self._folders, now)
        found, mistakes = with_saved(self._config, self._folders, own, self._saved, now)
        for mistake in mistakes.values():
            self._tell(f"left out: {mistake}")
        return fired(self._config, found)

    def find(self, name: str) -> Definition:
        """Return a schedule, or raise ``UnknownName``."""
        return find_definition(self.definitions, name)

    def schedules(self) -> list[dict[str, Any]]:
        from sweeps.service.schedules.overview import states

        with self._connection() as connection:
            found = states(self._as_fired(connection), time.time(), connection)
        return [each.as_json() for each in found]

    def firings(self, names: Sequence[str], count: int) -> list[dict[str, Any]]:
        from sweeps.service.schedules.overview import coming

        definitions = self.definitions
        with contextlib.suppress(SweepsError), self._connection() as connection:  # the files suffice without it
            definitions = self._as_fired(connection)
        asked = [find_definition(definitions, name) for name in names or definitions]
        return [each.as_json() for each in islice(coming(asked, time.time()), count)]

    def versions(self, name: str) -> list[dict[str, Any]]:
        found = self._saved.versions(name)
        if not found:  # only then may its name be unknown
            self.find(name)
        return [vars(each) for each in found]

    def nights(self, name: str) -> list[dict[str, Any]]:
        from sweeps.service.nights.night import of_schedule

        found: list[dict[str, Any]] = []
        with self._connection() as connection:
            if connection is not None:
                found = [night.as_json() for night in of_schedule(connection, name)]
        if not found:  # a schedule that was removed can still have nights; only then may its name be unknown
            self.find(name)
        return found

    def pause(self, name: str, *, is_paused: bool) -> None:
        """Pause a schedule, or let it fire again, by writing a file that a running service reads."""
        from sweeps.service.schedules.schedule_file import enabled_text

        definition, tag = self.find(name), self._saved.tag(name)
        if is_paused and not definition.schedule.enabled:
            with self._connection() as connection:
                definition = self._as_fired(connection)[name]
        text = enabled_text(definition, self._saved.text(name), is_enabled=not is_paused)
        if not is_paused:
            replace(definition, schedule=replace(definition.schedule, enabled=True)).check(time.time())
        self._saved.write(
            name,
            text,
            tag=tag,
            user=user(),
            now=time.time(),
            action="paused" if is_paused else "resumed",
            owner=Owner(definition.schedule.user, definition.schedule.project),
            operators=[each.name for each in self.definitions.values() if not each.is_saved or each.replaces],
        )
        note_of_operator(self._config, f"schedule {'paused' if is_paused else 'resumed'}", schedule=name)

    def fire(self, name: str) -> Job | None:
        """Add a schedule's sweep to the queue of the service now; None if none is running."""
        from sweeps.service.schedules.firing import fire_now

        definition, now = self.find(name), time.time()
        with self._database() as engine:
            if engine is None:
                return None
            with writing(engine) as connection:
                if not is_served(connection, now - self._config.queue.dead_after_s):
                    return None
                job = fire_now(connection, definition, now)
        note_of_operator(self._config, "schedule fired", job=job.id, sweep=job.sweep, schedule=name)
        return job

    def _as_fired(self, connection: Connection | None) -> dict[str, Definition]:
        """Return all schedules by name. A schedule that a running service fires is enabled even if its file says
        otherwise: the service may have been started with ``enable=[NAME]``."""
        if connection is None or not is_served(connection, time.time() - self._config.queue.dead_after_s):
            return self.definitions
        rows = tables.schedules
        fired = set(connection.execute(select(rows.c.name).where(rows.c.enabled)).scalars())
        return {
            name: replace(each, schedule=replace(each.schedule, enabled=True))
            if name in fired and not each.is_saved  # a saved file is newer than what the service has written
            else each
            for name, each in self.definitions.items()
        }

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Connection | None]:
        with self._database() as engine, contextlib.ExitStack() as stack:
            yield None if engine is None else stack.enter_context(engine.connect())

    @contextlib.contextmanager
    def _database(self) -> Iterator[Engine | None]:
        """Open the service's database if it exists; reading must not create one."""
        if not database_exists(self._config.database):
            yield None
            return
        with opened_database(self._config.database) as engine:
            yield engine
