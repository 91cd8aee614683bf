"""Command line of a program with a trial's values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from sweeps_train.command.placeholders import Lookup, Template, as_text, filled
from sweeps_train.config.command import CommandTask

_KEPT_OR_CONTINUED = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\[^\r\n])|\\\r?\n""", re.DOTALL)
"""A quoted text or an escaped character, as a group, or the end of a line that a backslash continues."""


def words(task: CommandTask) -> list[str]:
    """Return the words of ``task.command``, with placeholders.

    Raises:
        ValueError: The text has a quote that is not closed, or no word.
    """
    try:
        if isinstance(task.command, str):  # shlex does not join lines, as a shell does
            found = shlex.split(_KEPT_OR_CONTINUED.sub(r"\1", task.command))
        else:
            found = [as_text(each) for each in task.command]
    except ValueError as error:
        raise ValueError(f"{error} in {task.command!r}; close it, or give a list of words") from None
    if not found or not found[0]:
        raise ValueError(f"{task.command!r} contains no program")
    return found


def command_line(task: CommandTask, lookup: Lookup) -> list[str]:
    """Return the command to start, with its options.

    >>> task = CommandTask(kind="command", command="train --lr {lr}", options={"--resume": "{from}", "--fast": True})
    >>> command_line(task, {"lr": 0.1, "from": None}.__getitem__)
    ['train', '--lr', '0.1', '--fast']
    """
    return [
        *(each for word in words(task) for each in _filled(word, lookup)),
        *(each for name, value in task.options.items() for each in _option(name, filled(value, lookup))),
    ]


def _filled(word: str, lookup: Lookup) -> Iterator[str]:
    template = Template(word)
    value = template.value(lookup)
    if template.is_one_placeholder and isinstance(value, Mapping):  # {arguments}: all of them as options
        for name, each in value.items():
            yield from _option(f"--{name}=", each)
    else:
        yield as_text(value)


def _option(name: str, value: Any) -> list[str]:
    """Return the words of an option.

    >>> _option("--lr", 0.1), _option("lr=", 0.1), _option("--fast", True), _option("amp=", False), _option("x=", None)
    (['--lr', '0.1'], ['lr=0.1'], ['--fast'], ['amp=false'], [])
    """
    if value is None:
        return []
    if isinstance(value, bool) and (name.startswith("-") or not name.endswith("=")):  # a flag
        return [name.removesuffix("=")] if value else []
    return [f"{name}{as_text(value)}"] if name.endswith("=") else [name, as_text(value)]
