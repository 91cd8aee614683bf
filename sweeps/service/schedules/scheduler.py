"""Decides about firings when their time has come, and follows the definitions as people change them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sqlalchemy import Engine, RowMapping, select

from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import SweepsError
from sweeps.service.auth.principal import Principal, visible
from sweeps.service.clock import Clock
from sweeps.service.database import tables
from sweeps.service.database.storage_errors import is_unavailable
from sweeps.service.poller import Poller
from sweeps.service.schedules.definition import GROUP, Definition, load_definitions
from sweeps.service.schedules.firing import (
    AHEAD_S,
    decide,
    is_as_defined,
    next_decision,
    put_right,
    retire,
)
from sweeps.service.schedules.history import DAY_S, forget
from sweeps.service.schedules.overview import coming
from sweeps.service.schedules.steady import SteadyTime

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the files and at the clock, which people may set."""
AGAIN_AFTER_S = 5.0
"""Seconds after which a database that was away is asked again."""

logger = logging.getLogger(__name__)

_Files = list[tuple[str, int, int]]


class Scheduler:
    """Fires schedules, on a thread of its own. Any number of services may do so from one database."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        config_dirs: Sequence[Path] = (),
        *,
        only: Sequence[str] | None = None,
        enable: Sequence[str] = (),
        service: str | None = None,
        keep_days: float = 400.0,
        queued: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            engine: The service's database.
            clock: What time it is.
            config_dirs: Users' folders of configs, before our own.
            only: Names of the schedules that it fires; default: all.
            enable: Names of those that it fires whatever their files say.
            service: Number of this service.
            keep_days: How long it is remembered what became of firings.
            queued: Called when sweeps were put into the queue.

        Raises:
            ConfigError: A schedule is defined wrongly; every mistake is named.
            UnknownName: There is no schedule of one of the names.
        """
        self._engine, self._clock, self._config_dirs = engine, clock, config_dirs
        self._only, self._enable, self._service, self._queued = only, enable, service, queued
        self._files = self._look_at_files()
        self.definitions = self._load()
        """By name, as they were when all of them were last right."""
        self.trouble: str | None = None
        """What is wrong with the files as they are now."""
        self._gone: list[Definition] = []
        self._keep_days, self._forget_at = keep_days, -math.inf
        self._time = SteadyTime(clock)
        self._poller = Poller("scheduler", clock, self.poll, AGAIN_AFTER_S)

    def visible_to(self, principal: Principal) -> dict[str, Definition]:
        """Schedules whose sweeps a principal may see."""
        return {name: each for name, each in self.definitions.items() if visible(principal, each.schedule)}

    def start(self) -> None:
        """Begin."""
        for name, definition in self.definitions.items():
            if not definition.schedule.enabled:
                logger.info("%s is disabled; `python -m sweeps serve 'enable=[%s]'` fires it", name, name)
                continue
            soonest = next(coming([definition], self._clock.now()), None)
            logger.info("%s fires next at %s", name, "no time" if soonest is None else definition.shown(soonest.starts))
        self._poller.start()

    def stop(self) -> None:
        """End."""
        self._poller.stop()

    def poll(self) -> float:
        """Do what is to be done now; returns the seconds until there is more to do, as far as one can see."""
        self._reload()
        while self._gone:
            retire(self._engine, self._gone[-1], self._time.now(), self._service)
            self._gone.pop()
        now, soonest = self._time.now(), LOOK_EVERY_S
        rows = self._put_right(self._rows(), now)
        for name, definition in self.definitions.items():
            row = rows.get(name)
            if row is not None and is_as_defined(row, definition):
                wait = next_decision(definition, row["decided"]) - now if definition.schedule.enabled else math.inf
                if wait > 0:
                    soonest = min(soonest, wait)
                    continue
            try:
                if self._decide(definition, now):
                    soonest = 0.0  # there may be more
            except Exception as error:  # no schedule keeps others from firing
                if is_unavailable(error):
                    raise
                logger.exception("%s: what becomes of its firings cannot be decided; trying again", name)
        if now >= self._forget_at:
            self._forget_at = now + DAY_S
            if forgotten := forget(self._engine, now, self._keep_days):
                logger.info("%d firings of more than %g days ago are forgotten", forgotten, self._keep_days)
        return soonest

    def _rows(self) -> dict[str, RowMapping]:
        with self._engine.connect() as connection:
            return {row["name"]: row for row in connection.execute(select(tables.schedules)).mappings()}

    def _put_right(self, rows: Mapping[str, RowMapping], now: float) -> Mapping[str, RowMapping]:
        """Schedules whose firings were decided by a clock that was ahead; their rows, as they are then."""
        if not self._time.is_settled:
            return rows
        ahead = [name for name in self.definitions if name in rows and rows[name]["decided"] > now + AHEAD_S]
        for name in ahead:
            definition = self.definitions[name]
            put_right(self._engine, definition, now)
            logger.warning(
                "%s: its firings were decided up to %s, which is to come: a clock was wrong. What was recorded as "
                "missed or skipped after now is forgotten, and it fires as its line says",
                name,
                definition.shown(rows[name]["decided"]),
            )
        return self._rows() if ahead else rows

    def _decide(self, definition: Definition, now: float) -> bool:
        """Whether anything could be decided."""
        firings = decide(self._engine, definition, now, self._service)
        for firing in firings:
            what = f"job {firing.job}" if firing.reason is None else firing.reason
            logger.info("%s, %s: %s: %s", definition.name, definition.shown(firing.due), firing.outcome, what)
        if any(firing.job is not None for firing in firings):
            self._queued()
        return bool(firings)

    def _reload(self) -> None:
        """Follow the files, if all of them are right."""
        files = self._look_at_files()
        if files == self._files:
            return
        self._files = files
        try:
            definitions = self._load()
        except SweepsError as error:
            self.trouble = str(error)
            logger.error("the schedules stay as they were: %s", error)  # noqa: TRY400 - a user's mistake
            return
        self._gone += [each for name, each in self.definitions.items() if name not in definitions]
        self.definitions, self.trouble = definitions, None
        logger.info("schedules: %s", ", ".join(definitions) or "none")

    def _load(self) -> dict[str, Definition]:
        return load_definitions(self._config_dirs, self._clock.now(), self._only, self._enable)

    def _look_at_files(self) -> _Files:
        paths = [
            path for folder in ConfSearchPath(self._config_dirs).folders for path in (folder / GROUP).glob("*.yaml")
        ]
        looked_at = []
        for path in sorted(paths):
            try:
                status = path.stat()
            except OSError:  # just removed
                continue
            looked_at.append((str(path), status.st_mtime_ns, status.st_size))
        return looked_at
