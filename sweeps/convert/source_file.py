"""YAML file that knows the line of each value, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sweeps.errors import UserError
from sweeps.texts.suggestions import did_you_mean

Path_ = tuple[str | int, ...]
Kind = TypeVar("Kind")
MAX_DEPTH = 50
"""Maximum levels of mappings and lists; a deeper nesting means that a YAML anchor refers to itself."""
LARGEST = 2.0**63
"""Bound of the absolute value of a distribution's numbers."""
NAMES = {dict: "a mapping", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}


class SourceFile:
    """YAML file whose first document is a mapping, with the line of each value."""

    def __init__(self, path: Path):
        """
        Raises:
            UserError: The file cannot be read, or is not a YAML mapping.
        """
        self.path = path
        self._lines: dict[Path_, int] = {}
        try:
            with path.open(encoding="utf-8") as file:
                loader = yaml.SafeLoader(file)
                node = loader.get_node() if loader.check_node() else None
                values = None if node is None else self._plain(loader, node, ())
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise UserError(f"{path}: is not written in UTF-8; save it as UTF-8") from None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f", line {mark.line + 1}"
            raise UserError(f"{path}{line}: {error.problem or 'is not YAML'}") from None
        except yaml.YAMLError as error:
            raise UserError(f"{path}: is not YAML ({' '.join(str(error).split())})") from None
        if not isinstance(values, dict):
            raise UserError(f"{path}: must have `key: value` lines")
        self.values: dict[str, Any] = values

    def _plain(self, loader: yaml.SafeLoader, node: yaml.Node, path: Path_) -> Any:
        """Return the value of a node, and record its line and those of all nodes below it."""
        self._lines[path] = node.start_mark.line + 1
        if len(path) > MAX_DEPTH:
            raise UserError(f"{self.path}, line {self._lines[path]}: is nested too deeply")
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            result: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key = str(loader.construct_object(key_node, deep=True))
                result[key] = self._plain(loader, value_node, (*path, key))
                self._lines[*path, key] = key_node.start_mark.line + 1
            return result
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(loader, each, (*path, index)) for index, each in enumerate(node.value)]
        # A date stays the text that a program gets; as an object it would be no value of a config.
        return node.value if node.tag == "tag:yaml.org,2002:timestamp" else loader.construct_object(node)

    def line(self, *path: str | int) -> int:
        """Return the line of a value, or of the nearest value around it."""
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]

    def mistake(self, message: str, *path: str | int) -> UserError:
        return UserError(f"{self.path}, line {self.line(*path)}: {message}")

    def get(self, kind: type[Kind], *path: str | int) -> Kind | None:
        """Return the value at a path; None if there is none.

        Raises:
            UserError: The value is of another type.
        """
        value: Any = self.values
        for part in path:
            is_there = part in value if isinstance(value, Mapping) else isinstance(part, int) and part < len(value)
            if not is_there:
                return None
            value = value[part]
            if value is None:
                return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise self.mistake(f"{dotted(path)}={value!r}: must be {NAMES.get(kind, kind.__name__)}", *path)
        return value

    def require(self, kind: type[Kind], *path: str | int) -> Kind:
        """Return the value at a path.

        Raises:
            UserError: The value is missing or of another type.
        """
        value = self.get(kind, *path)
        if value is None:
            raise self.mistake(f"{dotted(path)} is missing", *path)
        return value

    def number(self, *path: str | int) -> float | None:
        """Return a number, even one written as text (``"0.1"``, or ``1e-3``, which YAML 1.1 reads as text).

        Raises:
            UserError: The value is not a number.
        """
        value = self.get(object, *path)
        if value is None:
            return None
        number = as_number(value)
        if number is None:
            raise self.mistake(f"{dotted(path)}={value!r}: must be a number", *path)
        return number

    def choose(self, known: Mapping[str, Kind], *path: str | int, default: str | None = None) -> Kind:
        """Return the value that a name selects.

        Raises:
            UserError: The name is missing or unknown.
        """
        name = self.get(str, *path) or default
        if name is None:
            raise self.mistake(f"{dotted(path)} is missing; it is one of {', '.join(known)}", *path)
        if name.lower() not in known:
            raise self.mistake(f"{dotted(path)}={name}: is not known{did_you_mean(name.lower(), known)}", *path)
        return known[name.lower()]


def dotted(path: Path_) -> str:
    """Return a path as text: ``parameters.lr``."""
    return ".".join(map(str, path))


def as_number(value: Any) -> float | None:
    """Return a finite number, an int if it was written as one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return None
    is_usable = isinstance(value, int | float) and abs(value) < LARGEST  # neither nan nor infinite
    return value if is_usable else None
