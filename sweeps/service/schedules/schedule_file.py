"""The YAML of a saved schedule: reading, writing, and differences between two versions.

It is a schedule as in ``conf/schedule/``, without Hydra's ``defaults`` and interpolations. A file with nothing but
``name`` and ``enabled`` sets whether the operator's schedule of that name fires.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from dataclasses import replace
from typing import Any

import yaml
from pydantic import TypeAdapter

from sweeps.compose.config_source import explain
from sweeps.compose.schema_errors import read_as
from sweeps.config.schedule import Schedule
from sweeps.errors import ConfigError
from sweeps.service.schedules.definition import Definition

_ENABLED = re.compile(r"^enabled:[^\n#]*(?<! )", re.MULTILINE)
_SCHEDULE = TypeAdapter(Schedule)


def enabled_text(definition: Definition, text: str | None, *, is_enabled: bool) -> str | None:
    """Return the YAML of a schedule that is paused or resumed, from its saved file (``text``) if there is one; None if
    the operator's own file lets it fire.

    Raises:
        ConfigError: The schedule is already paused, or is not paused.
    """
    if definition.schedule.enabled == is_enabled:
        raise ConfigError(f"{definition.name} is {'not' if is_enabled else 'already'} paused")
    own = definition.replaces
    if is_enabled and own is not None and replace(definition.schedule, enabled=True) == own.schedule:
        return (
            None  # not for a pause: a service that was started with ``enable=[NAME]`` fires it whatever that file says
        )
    if definition.is_operators:  # not copied, so that later corrections of the operator's file apply
        document = {"name": definition.name, "enabled": is_enabled}
        return _header(definition.description or definition.name) + yaml.safe_dump(document, sort_keys=False)
    line = f"enabled: {'true' if is_enabled else 'false'}"
    changed, count = _ENABLED.subn(line, text or "")
    return changed if count else f"{changed.rstrip()}\n{line}\n"


def is_pause(text: str) -> bool:
    """Whether a saved file only sets whether the operator's schedule fires."""
    with contextlib.suppress(ConfigError):
        return _document(text).keys() <= {"name", "enabled"}
    return False


def read_schedule(text: str, name: str, operators: Schedule | None = None) -> Schedule:
    """Return the schedule of a saved file, which may pause the operator's schedule of that name; raise ``ConfigError``
    with every mistake, one per line."""
    document = _document(text)
    if operators is not None and is_pause(text):
        document = {**_SCHEDULE.dump_python(operators, mode="json"), **document}
    schedule = read_as(Schedule, document)
    if schedule.name != name:
        raise ConfigError(f"name={schedule.name}: must be {name}, the name of its file")
    return schedule


def write_schedule(schedule: Schedule, description: str) -> str:
    """Return the YAML of a schedule, without defaults; its first line is the description."""
    document: dict[str, Any] = _SCHEDULE.dump_python(schedule, mode="json", exclude_defaults=True)
    document.setdefault("enabled", True)
    body = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return _header(description or schedule.name) + body


def description_of(text: str | None) -> str:
    """Return the first line of a saved file."""
    first = (text or "").split("\n", 1)[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def has_more_comments(text: str | None) -> bool:
    """Whether a file has comments besides its first line, which ``write_schedule`` cannot keep."""
    _, _, rest = (text or "").partition("\n")
    try:
        values = [range(token.start_mark.index, token.end_mark.index) for token in yaml.scan(rest)]
    except yaml.YAMLError:
        return False  # the mistake is reported elsewhere
    return any(not any(sign.start() in value for value in values) for sign in re.finditer("#", rest))


def difference(before: str | None, after: str | None) -> list[str]:
    """Return the lines that differ between two versions, each after ``-`` or ``+``, with a line around them."""
    lines = difflib.unified_diff((before or "").splitlines(), (after or "").splitlines(), n=1, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _document(text: str) -> dict[str, Any]:
    """Return the keys and values of a saved file, or raise ``ConfigError`` if it is not a schedule."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(explain(error)) from None
    if not isinstance(document, dict):
        raise ConfigError("must have `key: value` lines")
    return document


def _header(description: str) -> str:
    return f"# {' '.join(''.join(sign if sign.isprintable() else ' ' for sign in description).split())}\n"
