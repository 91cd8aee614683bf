"""Contents of the form for a new sweep: the config, an option for each group, overrides, and project."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from fastapi import Request
from pydantic import ValidationError

from sweeps.completion.conf_names import ConfNames
from sweeps.errors import ConfigError
from sweeps.service.auth.request_validation import OPERATORS
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.jobs import HIGHEST_PRIORITY

GROUP_FIELD = "group:"
"""Beginning of the names of the groups' fields: ``group:model``."""
LINE, TEXT = 500, 100_000
"""Maximum length of a field, and of one with several lines."""
_CHOICE = re.compile(r"\+?([A-Za-z_][\w/]*)=([\w.-]+)", re.ASCII)
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")
_IN_QUOTES = re.compile(r"""(['"])(?:(?!\1).)*\1""", re.DOTALL)
_KEY = re.compile(r"[+~]*([\w./@-]+)")


@dataclass(frozen=True, kw_only=True)
class FilledForm:
    """Texts of a form's fields, by their names: ``conf``, ``overrides``, ``then`` (the button that was pressed, or
    ``preview`` for the page's script) and so on."""

    values: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    @property
    def lines(self) -> list[str]:
        """Overrides, without empty lines."""
        return [line.strip() for line in self["overrides"].split("\n") if line.strip()]


class FilledSweep(FilledForm):
    @property
    def groups(self) -> dict[str, str]:
        """Option of each group that differs from the config."""
        found = {name: value.strip() for name, value in self.values.items() if name.startswith(GROUP_FIELD)}
        return {name.removeprefix(GROUP_FIELD): option for name, option in found.items() if option}

    def request(self, names: ConfNames) -> Run:
        """Request of the form; raises ``ValidationError`` if a field is invalid."""
        conf = self["conf"]
        has = names.chosen(conf) if conf in names.described() else {}
        groups = [f"{'' if group in has else '+'}{group}={option}" for group, option in self.groups.items()]
        return Run(conf=conf, overrides=[*groups, *self.lines], name=self["name"].strip() or None)


def split_overrides(text: str) -> list[str]:
    """Split overrides at blanks outside of quotes. Quotes are kept, unless they enclose a whole override as in a shell.

    >>> split_overrides("a=1 b='x y' 'c=choice(1, 2)'")
    ['a=1', "b='x y'", 'c=choice(1, 2)']
    """
    words = [match[0] for match in _WORD.finditer(text)]
    return [word[1:-1] if _IN_QUOTES.fullmatch(word) else word for word in words]


async def read_texts(request: Request, long: Container[str]) -> dict[str, str]:
    """Read the texts of a form's fields; only the fields in ``long`` may have more than one line's length. Raise
    ``ConfigError`` if a text is too long."""
    form = {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
    for name, value in form.items():
        if len(value) > (longest := TEXT if name in long else LINE):
            raise ConfigError(f"{name[:LINE]}: is longer than {longest:,} characters")
    return form


async def read_form(request: Request) -> FilledSweep:
    return FilledSweep(values=await read_texts(request, ("overrides",)))


def filled_from(
    conf: str, overrides: Sequence[str], names: ConfNames, project: str = "", priority: int = 0
) -> FilledSweep:
    """Form with an earlier request, without the output folder, which the service sets."""
    groups, lines = dict[str, str](), []
    known = {group: names.described(group) for group in names.groups() if group not in OPERATORS}
    for each in overrides:
        choice = _CHOICE.fullmatch(each)
        if choice is not None and choice[2] in known.get(choice[1], ()):
            groups[f"{GROUP_FIELD}{choice[1]}"] = choice[2]
        elif not each.startswith("output_dir="):
            lines.append(each)
    texts = {"conf": conf, "overrides": "\n".join(lines), "project": project, "priority": str(priority)}
    return FilledSweep(values=groups | texts)


@dataclass(frozen=True, kw_only=True)
class GroupField:
    """A group as a list of its options."""

    group: str
    options: Mapping[str, str]
    """Description of each option."""
    default: str
    """Option that the config chooses; empty: none."""
    chosen: str
    """Option that the form chooses; empty: the config's."""

    @property
    def id(self) -> str:
        """Id of the field's HTML element."""
        return "group-" + self.group.replace("/", "-")

    @property
    def description(self) -> str:
        """Description of the option that the sweep would use."""
        return self.options.get(self.chosen or self.default, "")


def group_fields(filled: FilledSweep, names: ConfNames) -> list[GroupField]:
    """Fields of all groups: those of the config first, in the order of its defaults."""
    has = names.chosen(filled["conf"]) if filled["conf"] in names.described() else {}
    groups = [group for group in names.groups() if group not in OPERATORS]
    order = {group: place for place, group in enumerate(has)}
    return [
        GroupField(
            group=group,
            options=names.described(group),
            default=has.get(group, ""),
            chosen=filled.groups.get(group, ""),
        )
        for group in sorted(groups, key=lambda group: (order.get(group, len(order)), group))
    ]


def read_priority(text: str) -> int:
    """Return the priority in a form's text, or raise ``ConfigError``."""
    try:
        number = int(text.strip() or "0")
    except ValueError:
        number = HIGHEST_PRIORITY + 1
    if abs(number) > HIGHEST_PRIORITY:
        raise ConfigError(f"priority={text}: give a whole number from {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}")
    return number


def mistakes_of(filled: FilledSweep, error: Exception) -> dict[str, str]:
    """Mistakes by the field at which they are shown; "" is the whole form."""
    found: dict[str, list[str]] = {}
    if isinstance(error, ValidationError):
        for each in error.errors():
            found.setdefault(str(each["loc"][0]), []).append(f"{each['input']}: {each['msg']}")
    else:
        place = "overrides"
        for line in str(error).splitlines():
            place = _field_of(filled, line) or place
            found.setdefault(place, []).append(_with_number(filled, line) if place == "overrides" else line)
    if "overrides" in found and not filled["overrides"].strip() and not isinstance(error, ValidationError):
        found[""] = found.pop("overrides") + found.get("", [])
    return {place: "\n".join(lines) for place, lines in found.items()}


def _field_of(filled: FilledSweep, mistake: str) -> str | None:
    """Field at which a mistake of the command line is shown; None if it does not name one."""
    if mistake.startswith(f"conf={filled['conf']}: there is no such"):
        return "conf"
    for name in ("priority", "project"):
        if mistake.startswith(f"{name}="):
            return name
    if "--name" in mistake or mistake.startswith("name="):
        return "name"
    key = _key(mistake)
    return f"{GROUP_FIELD}{key}" if key in filled.groups else None


def _with_number(filled: FilledSweep, mistake: str) -> str:
    """The mistake, with the number of its line if there are several lines."""
    lines = filled["overrides"].split("\n")
    about = [number for number, line in enumerate(lines, 1) if line.strip() and _key(line) == _key(mistake)]
    return f"Line {about[-1]}: {mistake}" if about and len(filled.lines) > 1 else mistake


def _key(text: str) -> str:
    found = _KEY.match(text.strip().lstrip("'\""))
    return "" if found is None else found[1].rstrip(".")
