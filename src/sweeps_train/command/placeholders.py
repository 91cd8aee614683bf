"""Templates with placeholders such as ``{lr}``, in command lines, config files and paths of a program."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from string import Formatter
from typing import Any

from sweeps_train.config.command import CommandTask

Lookup = Callable[[str], Any]
"""Returns the value of a placeholder by its name."""

TRIAL_NAMES = (
    "trial.number",
    "trial.id",
    "trial.name",
    "trial.folder",
    "trial.attempt",
    "num_workers",
    "num_nodes",
    "start_folder",
)
"""Placeholders that every trial has, in addition to those for values of its config."""
CHECKPOINT = "checkpoint"
"""Placeholder of the checkpoint to continue from, which is null at a first start."""
PROCESS_NAMES = ("node_rank", "workers_per_node", "master_address", "master_port", "rank", "local_rank")
"""Placeholders whose values differ between the processes of a trial."""
ONLY_PER_WORKER = ("rank", "local_rank")
FILES = "files."
"""Prefix of the placeholders for config files."""
_NAME = re.compile(r"[^\W\d][\w./@-]*(\?[^?{}]*)?")
"""Name of a placeholder, optionally with a word that replaces any non-null value: ``checkpoint?resume``."""


class Template:
    """Text with placeholders.

    >>> Template("--lr={lr:.0e}").text({"lr": 0.001}.__getitem__)
    '--lr=1e-03'
    >>> Template("{lr}").value({"lr": 0.001}.__getitem__)
    0.001

    ``{NAME?WORD:OTHER}`` is WORD if there is a value, and OTHER if it is null; without OTHER it is null, too.

    >>> [Template("{at?resume:scratch}").text({"at": at}.__getitem__) for at in ("step-10", None)]
    ['resume', 'scratch']
    """

    def __init__(self, text: str) -> None:
        """
        Raises:
            ValueError: The text has a brace outside of a placeholder.
        """
        self._text = text
        self._parts: list[tuple[str, str | None, str]] = []
        try:
            parts = list(Formatter().parse(text))
        except ValueError:
            raise ValueError(f"{text!r} has an unmatched brace; write {{{{ and }}}} for literal braces") from None
        for literal, name, spec, conversion in parts:
            if name is not None and (not _NAME.fullmatch(name) or conversion or "{" in (spec or "")):
                raise ValueError(
                    f"{text!r} has braces without a placeholder's name; write {{{{ and }}}} for literal braces"
                )
            self._parts.append((literal, name, spec or ""))

    @property
    def names(self) -> list[str]:
        return [name.partition("?")[0] for _, name, _ in self._parts if name is not None]

    @property
    def names_of_values(self) -> list[str]:
        """Names of the placeholders that are replaced by their values, except those that choose between two words."""
        return [name for _, name, _ in self._parts if name is not None and "?" not in name]

    @property
    def is_one_placeholder(self) -> bool:
        """Whether the text is a single placeholder, so that its value keeps its type."""
        if len(self._parts) != 1:
            return False
        literal, name, spec = self._parts[0]
        return literal == "" and name is not None and (spec == "" or "?" in name)

    def text(self, lookup: Lookup) -> str:
        """Return the text with the placeholders filled in.

        Raises:
            ValueError: A value does not fit the format after the colon.
        """
        return "".join(
            literal + ("" if name is None else self._filled(name, spec, lookup)) for literal, name, spec in self._parts
        )

    def value(self, lookup: Lookup) -> Any:
        """Return the value with its type if the text is a single placeholder; otherwise the text."""
        if not self.is_one_placeholder:
            return self.text(lookup)
        _, name, other = self._parts[0]
        assert name is not None
        return _chosen(name, other, lookup) if "?" in name else lookup(name)

    def _filled(self, name: str, spec: str, lookup: Lookup) -> str:
        if "?" in name:
            return _chosen(name, spec, lookup) or ""
        value = lookup(name)
        try:
            return format(value, spec) if spec else as_text(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{{{name}:{spec}}} of {value!r}: {error}") from error


def _chosen(name: str, other: str, lookup: Lookup) -> str | None:
    """Return the word after the question mark if the placeholder has a value, else the other one."""
    placeholder, _, word = name.partition("?")
    return word if lookup(placeholder) is not None else other or None


def as_text(value: Any) -> str:
    """Return a value as a word of a command line: texts unchanged, others as JSON. Negative numbers have no exponent,
    since Python's ``argparse`` takes ``-1e-05`` for an option.

    >>> as_text("a b"), as_text(1e-05), as_text(-1e-05), as_text([1, None]), as_text(True)
    ('a b', '1e-05', '-0.00001', '[1, null]', 'true')
    """
    if isinstance(value, float) and -math.inf < value < 0:
        return format(Decimal(str(float(value))), "f")
    return value if isinstance(value, str) else json.dumps(value)


def filled(value: Any, lookup: Lookup) -> Any:
    """Return a config value with the placeholders in all its texts filled in; other values keep their type."""
    if isinstance(value, str):
        return Template(value).value(lookup)
    if isinstance(value, Mapping):
        return {key: filled(each, lookup) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, lookup) for each in value]
    return value


def config_values(task: CommandTask, config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Find the values of a task's placeholders: ``{lr}`` in ``task.arguments``, else by dotted path in the trial's
    config. Return them by name, without those that only a running trial has, and the names that have no value."""
    found: dict[str, Any] = {}
    unknown: list[str] = []
    sections = {**config, "arguments": task.arguments}
    for name in dict.fromkeys(name for _, text in templates(task) for name in Template(text).names):
        value = _find(name, task.arguments)
        if value is _MISSING and not is_of_trial(name):
            value = _find(name, sections)
            if value is _MISSING:
                unknown.append(name)
        if value is not _MISSING:
            found[name] = value
    return found, unknown


def is_of_trial(name: str) -> bool:
    """Whether a placeholder only has a value in a running trial."""
    return name in (*TRIAL_NAMES, CHECKPOINT, *PROCESS_NAMES) or name.startswith(FILES)


def _find(name: str, values: Mapping[str, Any]) -> Any:
    if name in values:
        return values[name]
    for length in range(1, name.count(".") + 1):  # a key may have dots itself
        parts = name.split(".")
        section = values.get(".".join(parts[:length]))
        if isinstance(section, Mapping) and (found := _find(".".join(parts[length:]), section)) is not _MISSING:
            return found
    return _MISSING


_MISSING = object()


def templates(task: CommandTask) -> Iterator[tuple[str, str]]:
    """Yield every text of a task that may contain placeholders, with its key."""
    yield from texts_in("task.command", task.command)
    yield from texts_in("task.options", task.options)
    yield from texts_in("task.environment", task.environment)
    for name, file in task.files.items():
        yield from texts_in(f"task.files.{name}.values", file.values)
    if task.working_folder is not None:
        yield "task.working_folder", task.working_folder
    for index, source in enumerate(task.read):
        if (path := getattr(source, "path", None)) is not None:
            yield f"task.read.{index}.path", path
    if task.checkpoints is not None:
        yield "task.checkpoints.folder", task.checkpoints.folder


def texts_in(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every text in a value, including those in its mappings and lists, with its key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from texts_in(f"{key}.{name}", each)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from texts_in(f"{key}.{index}", each)
