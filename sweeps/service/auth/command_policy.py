"""Programs that a config may run (``task=command``): only those that the operator has defined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sweeps.compose.search_path import ConfSearchPath
from sweeps.config import COMMAND_TASK
from sweeps.config.access import Access

FREE = "arguments"
"""The only key of section ``task`` that a request may change."""
ONLY_BY_NAME = (
    "the service runs only programs that its operator has written into conf/task/NAME.yaml and named in "
    "access.allowed_commands"
)


class CommandPolicy:
    """Compares the section ``task`` of a config with the files of the operator.

    A request may choose values of ``task.arguments`` that the file names, and change nothing else of the section: one
    more option, variable or file could make any program run anything.
    """

    def __init__(self, access: Access, config_dirs: Sequence[Path] = (), own: Iterable[Any] = ()) -> None:
        """Allow the programs that ``access`` names, and ``own``: further sections ``task`` that the operator has
        written."""
        folders = ConfSearchPath(config_dirs).folders
        sections = {name: _operators_section(folders, name) for name in access.allowed_commands}
        self._allowed = [section for section in sections.values() if section is not None]
        self.notes = [
            f"access.allowed_commands: {name} allows nothing, since no folder of configs has task/{name}.yaml with the "
            "whole section `task` of a program; write that file, or remove the name"
            for name, section in sections.items()
            if section is None
        ]
        """Notes on names of ``access.allowed_commands`` without effect."""
        self._allowed += [section for each in own if (section := _complete(each)) is not None]

    def refusals(self, config: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
        """Yield path, value and reason of each refusal in a config, which may be partial."""
        task = config.get("task")
        if not isinstance(task, Mapping):
            return
        if "kind" not in task:  # not a section, but single values of the space
            for name, value in task.items():
                if name in TASK_FIELDS and not any(section[name] == value for section in self._allowed):
                    yield f"task.{name}", value, ONLY_BY_NAME
        elif task["kind"] == "command":
            section = _complete(task)
            same = [each for each in self._allowed if section is not None and {**each, FREE: section[FREE]} == section]
            if section is None or not same:
                yield "task.command", task.get("command"), ONLY_BY_NAME
            else:
                yield from _refused_arguments(section[FREE], same[0][FREE])


TASK_FIELDS = frozenset(("command", "options", "files", "environment", "working_folder", "read", "checkpoints"))
"""Fields that only programs have; those of other tasks have separate rules."""


def _refused_arguments(arguments: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    for name, value in arguments.items():
        if name not in known:
            yield f"task.arguments.{name}", value, "the operator's file has no such argument"
        elif isinstance(value, str) and value.startswith("-"):
            yield f"task.arguments.{name}", value, "begins with a dash, so the program may take it for an option"


def _operators_section(folders: Sequence[Path], name: str) -> dict[str, Any] | None:
    """Return the section ``task`` of an operator's file; None if there is none, or it is not a complete section of a
    program."""
    for folder in folders:
        file = folder / "task" / f"{name}.yaml"
        if file.is_file():
            try:
                return _complete(yaml.safe_load(file.read_text(encoding="utf-8")))
            except (yaml.YAMLError, UnicodeDecodeError):
                return None
    return None


def _complete(section: Any) -> dict[str, Any] | None:
    """Return a section with all defaults; None if it is not valid."""
    try:
        complete: dict[str, Any] = COMMAND_TASK.dump_python(COMMAND_TASK.validate_python(section))
    except ValidationError:
        return None
    return complete
