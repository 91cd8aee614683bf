"""Contents of the form for a schedule: a string for each key of its file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any
from zoneinfo import available_timezones

import yaml
from fastapi import Request
from pydantic import TypeAdapter

from sweeps.compose.config_source import explain
from sweeps.compose.dotted import MISSING, find
from sweeps.compose.schema_errors import read_as
from sweeps.config.schedule import Schedule
from sweeps.errors import ConfigError
from sweeps.files.conf_text import nested
from sweeps.service.web.submit_form import FilledForm, read_texts

LONG = ("overrides", "nights")
NUMBERS = (
    *("grace_s", "jitter_s", "priority", "window.hours", "budget.gpu_hours", "budget.wall_hours"),
    *("budget.cost.limit", "budget.cost.per_gpu_hour", "budget.cost.per_cpu_hour"),
)
WORDS = ("name", "cron", "timezone", "conf", "overlap", "missed", "window.start", "window.end", "user", "project")
_SCHEDULE = TypeAdapter(Schedule)


class _WithoutAliases(yaml.SafeLoader):
    """Loader that refuses aliases: a few lines of them can stand for a billion values, which a message would list."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("repeats a value with *; write the value itself")
        return super().compose_node(parent, index)


class FilledSchedule(FilledForm):
    """Text of each key, and of ``description``, ``tag`` (state of the file when the form was opened) and ``then``."""

    def changed(self, **values: str) -> FilledSchedule:
        """Copy of the form with changed texts."""
        return FilledSchedule(values={**self.values, **values})

    def schedule(self) -> Schedule:
        """Schedule of the form; raises ``ConfigError`` with every mistake, one per line."""
        values: dict[str, Any] = {key: self[key].strip() for key in (*WORDS, *NUMBERS)}  # the schema reads the numbers
        values["overrides"] = self.lines
        values["nights"] = self._nights()
        given = {key: value for key, value in values.items() if value not in ("", None, [])}
        return read_as(Schedule, nested({**given, "enabled": self["enabled"] == "true"}))

    def _nights(self) -> Any:
        try:
            return yaml.load(self["nights"], _WithoutAliases)  # noqa: S506 - a safe loader
        except (yaml.YAMLError, RecursionError, ValueError) as error:  # no such date, or a number of 5,000 digits
            raise ConfigError(f"nights: {explain(error)}") from None


def filled_from(schedule: Schedule, description: str, tag: str) -> FilledSchedule:
    """Form with the values of a schedule."""
    document = _SCHEDULE.dump_python(schedule, mode="json", exclude_none=True)
    values = {key: _text(find(document, key)) for key in (*WORDS, *NUMBERS)}
    values["overrides"] = "\n".join(schedule.overrides)
    values["enabled"] = "true" if schedule.enabled else ""
    nights = document.get("nights")
    values["nights"] = "" if nights is None else yaml.safe_dump(nights, sort_keys=False).strip()
    return FilledSchedule(values={**values, "description": description, "tag": tag})


async def read_schedule_form(request: Request) -> FilledSchedule:
    return FilledSchedule(values=await read_texts(request, LONG))


def mistakes_of(error: Exception) -> dict[str, str]:
    """Mistakes by the key at which they are shown; "" is the whole form."""
    found: dict[str, list[str]] = {}
    place = ""
    for line in str(error).splitlines():
        place = _key_of(line) or ("overrides" if re.match(r"[\w./@'+~-]+(=|:| is)", line) else place)
        found.setdefault(place, []).append(line)
    return {key: "\n".join(lines) for key, lines in found.items()}


def _key_of(mistake: str) -> str | None:
    """Key of a schedule at the beginning of a mistake's text; the longest one if several match."""
    keys = sorted((*WORDS, *NUMBERS, *LONG, "enabled"), key=len, reverse=True)
    for key in keys:
        if mistake.startswith((f"{key}=", f"{key}:", f"{key}.", f"{key}[")):
            return key
    sections = {"window": "window.start", "budget": "budget.gpu_hours"}
    return next((key for section, key in sections.items() if mistake.startswith(section)), None)


def _text(value: Any) -> str:
    text = "" if value is MISSING else str(value)
    return text.removesuffix(".0") if isinstance(value, float) else text


@cache
def zones() -> Iterable[str]:
    """Names of the time zones, for suggestions."""
    return sorted(name for name in available_timezones() if "/" in name and not name.startswith(("Etc/", "posix/")))
