"""Definitions of schedules from ``conf/schedule/`` and from users' folders, completely checked."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.config.schedule import Schedule
from sweeps.errors import ConfigError, UnknownName, UserError, raise_mistakes
from sweeps.service.nights.checks import check_nights
from sweeps.service.schedules.cron import CronLine, instant_of
from sweeps.texts.suggestions import did_you_mean

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from sweeps.plan.plan import Plan, Where
    from sweeps.validate.config_checks import Approve

GROUP = "schedule"
_DUE = re.compile(r"\{due:(%[^{}]*)\}")
_MAX_CHECKED_FIRINGS = 25 * 60
"""Number of firings to check before reporting that the window excludes every firing: as many as a line that fires every
minute has on the longest day."""


@dataclass(frozen=True)
class Definition:
    """A schedule with the folders of its configs."""

    schedule: Schedule
    config_dirs: tuple[Path, ...] = ()
    """Users' folders of configs, which take precedence over the built-in ones."""
    is_saved: bool = False
    """Whether the schedule was saved through the service; its sweeps are then checked like submitted configs."""
    replaces: Definition | None = None
    """The operator's schedule of the same name that a saved one replaces."""
    description: str = ""
    """First line of the schedule's file."""
    placed: tuple[str, ...] = ()
    """Overrides that the service adds to those of the schedule, such as its output folder."""

    @property
    def name(self) -> str:
        return self.schedule.name

    @property
    def is_operators(self) -> bool:
        """Whether the schedule equals the operator's own file, except for whether it fires. The policy for submitted
        configs does not apply to its sweeps."""
        own = self.replaces if self.is_saved else self
        return own is not None and own.schedule == replace(self.schedule, enabled=own.schedule.enabled)

    @cached_property
    def line(self) -> CronLine:
        return CronLine(self.schedule.cron, self.schedule.timezone)

    def firings(self, after: float) -> Iterator[Coming]:
        """Yield the later firings of the cron line, in order; each waits for the previous ones, so that jitter does not
        change the order."""
        starts = -math.inf
        for due in self.line.after(after):
            end_by, outside = self.window(due)
            starts = max(starts, due + (0.0 if outside else self._jitter(due, end_by)))
            yield Coming(self, due, starts, end_by, outside)

    def window(self, due: float) -> tuple[float | None, str | None]:
        """Return the deadline of a firing's sweep, None if there is none; and the reason why the firing is outside of
        the window, if it is."""
        window = self.schedule.window
        if window is None:
            return None, None
        if window.hours is not None:
            return due + window.hours * 3600, None
        local = datetime.fromtimestamp(due, self.line.zone)
        shown, over_midnight = f"{local:%H:%M}", str(window.start) > str(window.end)
        evening = shown >= str(window.start)
        if not (evening or shown < str(window.end) if over_midnight else evening and shown < str(window.end)):
            return None, f"{shown} is outside of its window, {window.start} to {window.end}"
        day = local.date() + timedelta(days=1 if over_midnight and evening else 0)
        end = datetime.fromisoformat(f"{day} {window.end}")
        instant = instant_of(end, self.line.zone)
        # A repeated local time: the first one may be before the firing.
        return (instant if instant > due else end.replace(tzinfo=self.line.zone, fold=1).timestamp()), None

    def _jitter(self, due: float, end: float | None) -> float:
        """Return the seconds from the time of the cron line to a firing's start, which is within the window."""
        longest = self.schedule.jitter_s if end is None else min(self.schedule.jitter_s, end - due)
        digest = hashlib.sha256(f"{self.name} {due:.0f}".encode()).digest()
        return longest * int.from_bytes(digest[:8], "big") / 2**64

    def sweep_name(self, due: float) -> str:
        """Return the name of a firing's sweep: the schedule's name and the local time, with a suffix if that is
        repeated."""
        local = datetime.fromtimestamp(due, self.line.zone)
        return f"{self.name}-{local:%Y%m%d-%H%M%S}" + ("-2" if local.fold else "")

    def shown(self, time: float) -> str:
        """Return a time as text in the schedule's time zone."""
        return datetime.fromtimestamp(time, self.line.zone).isoformat(" ", "minutes")

    def in_json(self, time: float | None) -> str | None:
        """Return a time in the schedule's time zone, for documents."""
        return None if time is None else datetime.fromtimestamp(time, self.line.zone).isoformat(timespec="seconds")

    def overrides(self, due: float) -> list[str]:
        """Return the overrides of a firing's sweep, with ``{due:%Y-%m-%d}`` replaced by its local time in strftime
        format."""
        local = datetime.fromtimestamp(due, self.line.zone)
        own = [_DUE.sub(lambda found: local.strftime(found[1]), each) for each in self.schedule.all_overrides()]
        # One that sets the same key as a user's is left out, so that the policy judges the user's value.
        set_here = {each.partition("=")[0].lstrip("+") for each in own}
        return [*own, *(each for each in self.placed if each.partition("=")[0] not in set_here)]

    def plan(
        self, due: float, name: str | None = None, approve: Approve | None = None, *, is_ahead: bool = False
    ) -> Plan:
        """Return the plan of a firing's sweep, as ``run`` makes it. If the firing is ahead, the data of ``{due:...}``
        may be missing.

        Raises:
            UserError: The config has mistakes.
        """
        from sweeps.plan.plan import make_plan

        tokens = [f"conf={self.schedule.conf}", *self.overrides(due)]
        command = f"python -m sweeps schedule run {self.name}"
        is_dated = any(_DUE.search(each) for each in self.schedule.overrides)
        where: Where = "elsewhere" if is_ahead and is_dated else "here"
        return make_plan(tokens, self.config_dirs, name, command, approve=approve, where=where)

    def check(self, now: float) -> None:
        """Check the schedule, and its sweep if it is enabled; raise ``ConfigError`` with all mistakes, one per line."""
        checked, mistakes = self, self.mistakes_of_times(now)
        if mistakes:  # any valid line and zone will do
            checked = replace(self, schedule=replace(self.schedule, cron="@daily", timezone="UTC"))
        raise_mistakes([*mistakes, *checked.mistakes_of_sweep(now)])

    def mistakes_of_times(self, now: float) -> list[str]:
        """Return the mistakes in the cron line, the time zone and the window."""
        try:
            self.line  # noqa: B018 - a mistake raises
        except ValueError as error:
            key = "timezone" if "time zone" in str(error) else "cron"
            return [f"{key}={getattr(self.schedule, key)!r}: {error}"]
        window = self.schedule.window
        if window is None or any(each.outside is None for each in islice(self.firings(now), _MAX_CHECKED_FIRINGS)):
            return []
        shown = f"window={{start: {window.start}, end: {window.end}}}"
        return [f"{shown}: cron={self.schedule.cron!r} never fires within it; change one of them"]

    def mistakes_of_sweep(self, due: float) -> list[str]:
        """Return the mistakes in a firing's sweep; empty for a disabled schedule, which may be unfinished."""
        if not self.schedule.enabled:
            return []
        try:
            plan = self.plan(due, is_ahead=True)
            if self.schedule.nights is not None:
                check_nights(self.schedule.nights, plan)
        except UserError as error:
            command = " ".join(["run", f"conf={self.schedule.conf}", *self.overrides(due)])
            return [f"its sweep ({command}) cannot run: {each}" for each in str(error).splitlines()]
        return []


@dataclass(frozen=True)
class Coming:
    """A firing of a cron line that is not yet decided. Times are seconds since 1970."""

    definition: Definition
    due: float
    """Time of the firing according to the cron line."""
    starts: float
    """Start, including jitter, and time of the decision."""
    end_by: float | None
    """Deadline of the firing's sweep."""
    outside: str | None = None
    """Reason why the firing is outside of the window, if it is."""

    def may_start(self, now: float) -> bool:
        """Whether the firing is in the schedule's window, and the window has not ended."""
        return self.outside is None and (self.end_by is None or now < self.end_by)

    def as_json(self) -> dict[str, Any]:
        """Return the document, with times in the schedule's time zone."""
        times = {key: self.definition.in_json(getattr(self, key)) for key in ("due", "starts", "end_by")}
        return {"schedule": self.definition.name, **times}


def load_definitions(
    config_dirs: Sequence[Path], now: float, enable: Sequence[str] = (), placed: Sequence[str] = ()
) -> dict[str, Definition]:
    """Load all schedules of the folders, by name. Those in ``enable`` are enabled whatever their files say; ``placed``
    are overrides with the service's output folder.

    Raises:
        ConfigError: Names every mistake in any file, one per line.
        UnknownName: There is no schedule of a name in ``enable``.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from sweeps.compose.composition import first_line, resolve
    from sweeps.compose.schema_errors import read_as
    from sweeps.compose.search_path import ConfSearchPath

    search_path, mistakes = ConfSearchPath(config_dirs), []
    definitions: dict[str, Definition] = {}
    files: dict[str, str] = {}
    for option in search_path.options(GROUP):
        file = f"{GROUP}/{option}.yaml"
        try:
            with search_path:
                schedule = read_as(Schedule, resolve(_composed(f"{GROUP}/{option}"))[GROUP])
                added = tuple(placed) if placed and _has_default_folder(schedule) else ()
            if schedule.name in enable:
                schedule = replace(schedule, enabled=True)
            description = search_path.header(f"{GROUP}/{option}")
            definition = Definition(schedule, tuple(config_dirs), description=description, placed=added)
            definition.check(now)
        except ConfigError as error:
            mistakes += [f"{file}: {each}" for each in str(error).splitlines()]
            continue
        except (HydraException, OmegaConfBaseException, YAMLError, KeyError, ValueError, RecursionError) as error:
            mistakes.append(f"{file}: is not a schedule: {first_line(error)}")
            continue
        if (other := files.setdefault(definition.name, file)) != file:
            mistakes.append(f"{file}: name={definition.name}: {other} has the same; give one of them another")
        definitions[definition.name] = definition
    raise_mistakes(mistakes)
    for name in enable:
        find_definition(definitions, name)
    return definitions


def _composed(config: str, options: Sequence[str] = ()) -> DictConfig:
    """Compose a config with options of its groups quickly; ``hydra.compose``, which takes many times as long, only
    composes one with mistakes, to report them."""
    from hydra import compose

    from sweeps.compat.hydra import compose_options

    try:
        return compose_options(config, options)[0]
    except Exception:  # noqa: BLE001 - a mistake, or a change of Hydra's own config
        return compose(config, list(options))


def _has_default_folder(schedule: Schedule) -> bool:
    """Whether the config of a schedule's sweeps, with its options of groups, leaves their folder at the default."""
    options = [each for each in schedule.all_overrides() if not _DUE.search(each)]
    try:
        return _composed(schedule.conf, options).get("output_dir") in (None, "outputs")
    except Exception:  # noqa: BLE001 - `check` reports the mistake
        return True


def find_definition(definitions: dict[str, Definition], name: str) -> Definition:
    """Return a schedule by name, or raise ``UnknownName``."""
    if name not in definitions:
        raise UnknownName(f"{name}: there is no such schedule{did_you_mean(name, definitions)}")
    return definitions[name]
