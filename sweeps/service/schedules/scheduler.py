"""The scheduler: decides firings when they are due, and reloads the definitions when files change."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sqlalchemy import RowMapping, select

from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.schedule import Schedule
from sweeps.errors import SweepsError
from sweeps.service.auth.permissions import Principal, visible
from sweeps.service.clock import SteadyTime
from sweeps.service.counters import FIRINGS
from sweeps.service.database import tables
from sweeps.service.database.storage_errors import is_unavailable
from sweeps.service.poller import Poller
from sweeps.service.queue.jobs import Job
from sweeps.service.schedules.definition import GROUP, Definition
from sweeps.service.schedules.firing import (
    AHEAD_S,
    DAY_S,
    decide,
    is_as_defined,
    next_decision,
    remove_old,
    retire,
    undo_ahead,
)
from sweeps.service.schedules.overview import coming
from sweeps.service.schedules.saved import FOLDER, SavedSchedules, define_saved, fired, load_own, with_saved
from sweeps.service.service_context import ServiceContext
from sweeps.service.service_log import logged_about

POLL_EVERY_S = 1.0
"""Maximum seconds between two checks of the files and of the clock, which may jump."""
RETRY_AFTER_S = 5.0
"""Seconds until a failed poll is repeated."""
LOAD_AGAIN_AFTER_S = 60.0
"""Seconds until files with mistakes are loaded again, since a config or data that they name may have come meanwhile."""

logger = logging.getLogger(__name__)

_Files = list[tuple[str, int, int]]


class Scheduler(Poller):
    """Fires schedules, on its own thread. Any number of services may do so with the same database."""

    def __init__(
        self,
        service: ServiceContext,
        *,
        number: str | None = None,
        queued: Callable[[], None] = lambda: None,
    ) -> None:
        """Load the schedules of a service, whose id is ``number``. ``queued`` is called when sweeps were queued.

        Raises:
            ConfigError: Names every mistake in the schedules.
            UnknownName: There is no schedule of a name in the service's config.
        """
        super().__init__("scheduler", service.clock, self.poll, RETRY_AFTER_S)
        self._engine, self._clock, self._config_dirs = service.database, service.clock, service.config_dirs
        self._config, self._service, self._queued = service.config, number, queued
        self.saved, self._loading = SavedSchedules(service.config.folder / FOLDER), threading.Lock()
        self._files, self._saved_files = self._file_states(), self._saved_states()
        self.own = self._load()
        """The operator's schedules by name, as last loaded without mistakes; saved ones may replace them."""
        self._own_trouble, self._loaded_at = "", self._clock.now()
        self.definitions: dict[str, Definition] = {}
        """The schedules that this service fires, by name, as last loaded without mistakes."""
        self.known: Mapping[str, Definition] = {}
        """These schedules, and those of the operator that only other services fire."""
        self.trouble: str | None = None
        """Mistakes in the current files; None if there are none."""
        self._removed: list[Definition] = []
        self._disabled: set[str] = set()
        """Names of schedules that this service has disabled in the database."""
        self._decided: dict[str, Definition] = {}
        """Definition with which this service last decided firings of each schedule."""
        self._disputed: set[str] = set()
        """Names of schedules for which another service has a different cron line; the difference was logged."""
        self._take_saved()
        self._clean_at = -math.inf
        self._time = SteadyTime(self._clock)

    def visible_to(self, principal: Principal) -> dict[str, Definition]:
        """Schedules whose sweeps a principal may see."""
        return {name: each for name, each in self.definitions.items() if visible(principal, each.schedule)}

    def saved_definition(self, schedule: Schedule) -> Definition:
        """Return the definition that a schedule has once it is saved."""
        return define_saved(self._config, self._config_dirs, self.own, schedule)

    def of_job(self, job: Job) -> Definition | None:
        """Return the schedule that fired a job, in this or another service; None if there is none or it was removed."""
        return self.known.get(job.schedule or "")

    def start(self) -> None:
        for name, definition in self.definitions.items():
            if not definition.schedule.enabled:
                logger.info("%s is disabled; `python -m sweeps serve 'enable=[%s]'` fires it", name, name)
                continue
            soonest = next(coming([definition], self._clock.now()), None)
            logger.info("%s: next firing: %s", name, "none" if soonest is None else definition.shown(soonest.starts))
        super().start()

    def poll(self) -> float:
        """Decide all due firings, and return the seconds until the next poll."""
        self._reload()
        with self._loading:  # another thread that reloads meanwhile would replace the list
            while self._removed:
                retire(self._engine, self._removed[-1], self._time.now(), self._service)
                self._removed.pop()
        now, soonest = self._time.now(), POLL_EVERY_S
        rows = self._undo_ahead(self._rows(), now)
        for name, definition in self.definitions.items():
            if (wait := self._seconds_until_decision(definition, rows.get(name), now)) > 0:
                soonest = min(soonest, wait)
                continue
            try:
                if self._decide(definition, now):
                    soonest = 0.0  # there may be more to decide
            except Exception as error:  # one schedule must not keep others from firing
                if is_unavailable(error):
                    raise
                logger.exception("%s: its firings could not be decided; trying again", name)
        if now >= self._clean_at:
            self._clean_at = now + DAY_S
            if removed := remove_old(self._engine, now, self._config.keep_firings_days):
                logger.info("removed %d firings older than %d days", removed, self._config.keep_firings_days)
        return soonest

    def _seconds_until_decision(self, definition: Definition, row: RowMapping | None, now: float) -> float:
        """Return the seconds until the next decision about a schedule. A disabled one is decided once, since another
        service may have enabled it."""
        if not definition.schedule.enabled:
            return math.inf if definition.name in self._disabled else 0.0
        self._disabled.discard(definition.name)
        if row is None or not is_as_defined(row, definition):
            if row is not None:
                self._warn_of_dispute(definition, row)
            return 0.0
        return next_decision(definition, row["decided"]) - now

    def _warn_of_dispute(self, definition: Definition, row: RowMapping) -> None:
        """Log once that another service has replaced this service's cron line of a schedule in the database."""
        name, schedule = definition.name, definition.schedule
        line, other = (
            f"cron={schedule.cron} timezone={schedule.timezone}",
            f"cron={row['cron']} timezone={row['timezone']}",
        )
        if line != other and self._decided.get(name) == definition and name not in self._disputed:
            self._disputed.add(name)
            logger.warning(
                "%s: has %s here and %s in another service with the same database, so that its firings may be lost; "
                "give all services the same file",
                name,
                line,
                other,
            )

    def _rows(self) -> dict[str, RowMapping]:
        with self._engine.connect() as connection:
            return {row["name"]: row for row in connection.execute(select(tables.schedules)).mappings()}

    def _undo_ahead(self, rows: Mapping[str, RowMapping], now: float) -> Mapping[str, RowMapping]:
        """Undo decisions that were made by a clock that was ahead, and return the updated rows."""
        if not self._time.is_settled:
            return rows
        ahead = [name for name in self.definitions if name in rows and rows[name]["decided"] > now + AHEAD_S]
        for name in ahead:
            definition = self.definitions[name]
            undo_ahead(self._engine, definition, now)
            logger.warning(
                "%s: its firings were already decided up to %s, which is in the future, so a clock was wrong. Later "
                "firings recorded as missed or skipped have been removed; it follows its cron line again",
                name,
                definition.shown(rows[name]["decided"]),
            )
        return self._rows() if ahead else rows

    def _decide(self, definition: Definition, now: float) -> bool:
        """Decide a schedule's due firings; return whether there were any."""
        firings = decide(self._engine, definition, now, self._service)
        self._decided[definition.name] = definition
        if not definition.schedule.enabled:
            self._disabled.add(definition.name)
        for firing in firings:
            outcome = f"job {firing.job}" if firing.reason is None else firing.reason
            FIRINGS.labels(firing.outcome).inc()
            with logged_about(schedule=definition.name, job=firing.job):
                logger.info("%s, %s: %s: %s", definition.name, definition.shown(firing.due), firing.outcome, outcome)
        if any(firing.job is not None for firing in firings):
            self._queued()
        return bool(firings)

    def refresh(self) -> None:
        """Reload changed files now instead of at the next poll."""
        self._reload()
        self.wake()

    def _reload(self) -> None:
        """Reload the schedules whose files have changed, except those with mistakes."""
        with self._loading:
            files, saved_files = self._file_states(), self._saved_states()
            has_changed = saved_files != self._saved_files
            is_due = not 0 <= self._clock.now() - self._loaded_at < LOAD_AGAIN_AFTER_S
            if files != self._files or (self._own_trouble and is_due):
                self._files = files
                has_changed |= self._load_again()
            if has_changed:
                self._saved_files = saved_files
                self._take_saved()
                logger.info("schedules: %s", ", ".join(self.definitions) or "none")

    def _load_again(self) -> bool:
        """Load the operator's schedules; return false if they have the same mistakes as before."""
        before, self._loaded_at = self._own_trouble, self._clock.now()
        try:
            self.own, self._own_trouble = self._load(), ""
        except SweepsError as error:
            self._own_trouble = str(error)
            if self._own_trouble == before:
                return False
            logger.error("the schedules are not reloaded: %s", error)  # noqa: TRY400 - a user's mistake
        return True

    def _take_saved(self) -> None:
        """Add the saved schedules to the operator's; one with a mistake keeps its previous definition."""
        known, mistakes = with_saved(self._config, self._config_dirs, self.own, self.saved, self._clock.now())
        for name, mistake in mistakes.items():
            logger.error("a saved schedule has mistakes: %s", mistake)
            if name in self.known and self.known[name].is_saved:
                known[name] = self.known[name]
        gone = [*self._removed, *self.definitions.values()]
        self._removed = [each for each in gone if each.name not in known.keys() | mistakes.keys()]
        self.known, self.definitions = known, fired(self._config, known)
        self.trouble = "\n".join(filter(None, [self._own_trouble, *mistakes.values()])) or None

    def _load(self) -> dict[str, Definition]:
        return load_own(self._config, self._config_dirs, self._clock.now())

    def _file_states(self) -> _Files:
        folders = ConfSearchPath(self._config_dirs).folders
        return _states(path for folder in folders for path in (folder / GROUP).glob("*.yaml"))

    def _saved_states(self) -> _Files:
        return _states(self.saved.folder.glob("*.yaml"))


def _states(paths: Iterable[Path]) -> _Files:
    states = []
    for path in sorted(paths):
        try:
            with path.open("rb") as file:
                file.read(1)
                status = os.fstat(file.fileno())
            states.append((str(path), status.st_mtime_ns, status.st_size))
        except FileNotFoundError:  # just removed
            continue
        except OSError:
            states.append((str(path), 0, 0))  # so that it counts as changed once it can be read
    return states
