"""Changes of schedules through the service: permissions, and the checks before saving.

An admin may change every schedule. A user with the role ``run`` may make schedules of their own and change those. The
operator's files in the folders of configs are never written: a changed one is saved in the service's own folder, and
replaces it there until it is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fastapi import HTTPException

from sweeps.config.schedule import Schedule
from sweeps.errors import ConfigError, Conflict, UnknownName, UserError, raise_mistakes
from sweeps.report.plan_summary import PlanPreview
from sweeps.service.audit import Audit
from sweeps.service.auth.permissions import Principal, check_priority, project_of, visible
from sweeps.service.schedules.definition import Coming, Definition, find_definition
from sweeps.service.schedules.firing import forget
from sweeps.service.schedules.overview import coming
from sweeps.service.schedules.saved import Owner, Version
from sweeps.service.schedules.schedule_file import description_of, enabled_text, read_schedule, write_schedule
from sweeps.service.schedules.scheduler import Scheduler
from sweeps.service.service_context import ServiceContext
from sweeps.service.user_operations import UserOperations
from sweeps.texts.wording import counted

MOST_COMING = 5
"""Number of previewed firings."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checked:
    """A schedule without mistakes."""

    definition: Definition
    coming: Sequence[Coming]
    """Next firings of the schedule, or those that it would have if enabled."""
    preview: PlanPreview | None
    """Plan of the schedule's next sweep; None for a paused schedule, whose sweep is not checked."""


class ScheduleEditor:
    """Checks and saves schedules. Every method raises ``UserError`` for a mistake, and ``HTTPException`` with status
    403 if the principal lacks the right."""

    def __init__(
        self,
        service: ServiceContext,
        scheduler: Scheduler,
        operations: Callable[[Principal], UserOperations],
        audit: Audit,
    ) -> None:
        self._engine, self._clock, self._access = service.database, service.clock, service.config.access
        self._saved, self._scheduler, self._operations, self._audit = scheduler.saved, scheduler, operations, audit

    def find(self, principal: Principal, name: str) -> Definition:
        """Return a schedule that a principal may see, or raise ``UnknownName``."""
        return find_definition(self._scheduler.visible_to(principal), name)

    def may_change(self, principal: Principal, definition: Definition) -> bool:
        is_own = definition.is_saved and definition.schedule.user == principal.user
        return principal.may("admin") or (principal.may("run") and is_own)

    def check(self, principal: Principal, schedule: Schedule) -> Checked:
        """Check a schedule in the form in which it would be saved, with its sweep if it is enabled."""
        owned = self._owned(principal, schedule)
        present = self._scheduler.known.get(schedule.name)
        if present is not None:
            self._check_may_change(principal, present)
        elif not principal.may("admin"):
            owner = self._saved.last_owner(schedule.name)
            if owner is not None and owner.user != principal.user:
                raise _taken(schedule.name)
        definition = self._scheduler.saved_definition(owned)
        raise_mistakes(definition.mistakes_of_times(self._clock.now()))
        would_fire = replace(definition, schedule=replace(owned, enabled=True))
        firings = list(islice(coming([would_fire], self._clock.now()), MOST_COMING))
        preview = None
        if owned.enabled:
            preview = self._operations(principal).plan_schedule(definition, firings[0].due)
        return Checked(definition, firings, preview)

    def save(
        self, principal: Principal, schedule: Schedule, description: str | None, *, tag: str | None, is_new: bool
    ) -> None:
        """Check and save a schedule; with ``is_new``, there must be none of its name yet. ``description`` is the first
        line of its file, by default the current one; ``tag`` is that of the file when the user began, None to overwrite
        any state.

        Raises:
            Conflict: Somebody else has changed the schedule since; nothing is saved.
        """
        if is_new and schedule.name in self._scheduler.known:
            raise _taken(schedule.name)
        if is_new:
            self._check_number(principal)
        checked = self.check(principal, schedule)
        present = self._scheduler.known.get(schedule.name)
        if description is None:
            description = "" if present is None else present.description
        text = write_schedule(checked.definition.schedule, description)
        read_schedule(text, schedule.name)  # a file that could not be read again would be lost
        self._change(principal, checked.definition.schedule, text, tag, "saved")

    def pause(self, principal: Principal, name: str, *, is_paused: bool) -> None:
        """Pause a schedule, or let it fire again."""
        definition, tag = self._changeable(principal, name), self._saved.tag(name)
        text = enabled_text(definition, self._saved.text(name), is_enabled=not is_paused)
        if not is_paused and text is not None:
            self.check(principal, replace(definition.schedule, enabled=True))
        self._change(principal, definition.schedule, text, tag, "paused" if is_paused else "resumed")

    def remove(self, principal: Principal, name: str, *, tag: str | None = None) -> None:
        """Remove a saved schedule; if the operator has one of the same name, that one fires again."""
        definition = self._changeable(principal, name)
        if not definition.is_saved:
            raise ConfigError(f"{name} is in the operator's folders of configs and cannot be removed here; pause it")
        tag = self._saved.tag(name) if tag is None else tag
        self._change(principal, definition.schedule, None, tag, "removed")

    def bring_back(self, principal: Principal, name: str, number: int, *, tag: str | None = None) -> None:
        """Save an earlier version again."""
        versions = self.versions(principal, name)
        tag = self._saved.tag(name) if tag is None else tag
        version = next((each for each in versions if each.number == number), None)
        if version is None or version.text is None:
            raise UnknownName(f"{name} has no version {number} that can be brought back")
        if name not in self._scheduler.known:
            self._check_number(principal)
        own = self._scheduler.own.get(name)
        schedule, text = read_schedule(version.text, name, None if own is None else own.schedule), version.text
        owned = self.check(principal, schedule).definition.schedule
        if owned != schedule:  # it was another user's
            text = write_schedule(owned, description_of(text))
        self._change(principal, owned, text, tag, f"version {number} brought back")

    def versions(self, principal: Principal, name: str) -> list[Version]:
        """Return the saved versions of a schedule, newest first, also of a removed one; raise ``UnknownName`` if the
        principal may not see a schedule of this name."""
        if name not in self.removed(principal):
            self.find(principal, name)
        return self._saved.versions(name)

    def removed(self, principal: Principal) -> list[str]:
        """Return the names of removed schedules that a principal may see."""
        names = [name for name in self._saved.removed() if name not in self._scheduler.known]
        owners = ((name, self._saved.last_owner(name)) for name in names)
        return [name for name, owner in owners if owner is not None and visible(principal, owner)]

    # --- inside -------------------------------------------------------------------------------------------------

    def _owned(self, principal: Principal, schedule: Schedule) -> Schedule:
        """Return the schedule with the user's name and project; raise ``ConfigError`` if the user's role does not allow
        its settings."""
        if principal.may("admin"):
            return schedule
        raise_mistakes(self._refusals(principal, schedule))
        return replace(schedule, user=principal.user)

    def _refusals(self, principal: Principal, schedule: Schedule) -> Iterator[str]:
        try:
            project_of(principal, schedule.project)
            check_priority(principal, schedule.priority, self._access)
        except UserError as error:
            yield str(error)
        if not all(each.isprintable() for each in schedule.overrides):
            yield "overrides: have characters that cannot be printed; remove them"
        refusal = "needs a token with the role admin"
        if schedule.nights is not None:
            yield f"nights: {refusal}, since nights register models; leave it out"
        if schedule.overlap == "queue":
            yield f"overlap=queue: {refusal}, since sweeps could pile up; use skip or stop_old"
        if schedule.missed == "all":
            yield f"missed=all: {refusal}, since sweeps could pile up; use latest or none"

    def _check_number(self, principal: Principal) -> None:
        own = [each for each in self._scheduler.known.values() if each.is_saved]
        count = sum(each.schedule.user == principal.user for each in own)
        if not principal.may("admin") and count >= self._access.max_schedules:
            raise ConfigError(f"you have {counted(count, 'schedule')}, the maximum (access.max_schedules); remove some")

    def _check_may_change(self, principal: Principal, definition: Definition) -> None:
        if not visible(principal, definition.schedule):
            raise _taken(definition.name)
        if not self.may_change(principal, definition):
            raise HTTPException(
                403, f"{definition.name} is not yours; only {definition.schedule.user} and admins may change it"
            )

    def _changeable(self, principal: Principal, name: str) -> Definition:
        definition = self.find(principal, name)
        self._check_may_change(principal, definition)
        return definition

    def _change(self, principal: Principal, schedule: Schedule, text: str | None, tag: str | None, action: str) -> None:
        forgotten = self._saved.write(
            schedule.name,
            text,
            tag=tag,
            user=principal.user,
            now=self._clock.now(),
            action=action,
            owner=Owner(schedule.user, schedule.project),
            operators=self._scheduler.own,
        )
        logger.info("the schedule %s was changed by %s: %s", schedule.name, principal.user, action)
        self._audit.note(principal, f"schedule {action}", schedule=schedule.name)
        self._scheduler.refresh()
        forget(self._engine, forgotten)


def _taken(name: str) -> Conflict:
    return Conflict(f"name={name}: there is a schedule of this name already, or there was one; choose another")
