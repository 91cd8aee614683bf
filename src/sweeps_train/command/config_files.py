"""Config files of a program: the original ones with a trial's values set at dotted paths."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions
import yaml

from sweeps_train.command.placeholders import Lookup, filled
from sweeps_train.config.command import ConfigFile
from sweeps_train.files.atomic_write import atomic_write

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
NEW = "+"
"""Prefix of a path that the source does not have and that is to be added."""


class UnknownPath(KeyError):
    """Raised if a config file has no value at a path."""

    def __init__(self, path: str, above: str | None = None) -> None:
        """The beginning ``above`` of the path has a value instead of a section; it is empty if the whole file is a
        value, and None if the path was not to be added."""
        super().__init__(path, above)
        self.path, self.above = path, above


class Document(ABC):
    """Content of a config file, whose values can be set by dotted path. In the base class, it is nested mappings and
    lists."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def paths(self) -> Iterator[str]:
        """Yield the dotted paths of all values, those of sections first."""
        return _paths(self._content, "")

    def set(self, path: str, value: Any, *, new: bool = False) -> None:
        """Set a plain value at a dotted path; a key that has dots itself is found, too. With ``new``, the path is added
        with its sections if it does not exist; null becomes a section.

        Raises:
            UnknownPath: There is no such path.
        """
        owner, parts = self._content, path.split(".")
        while True:
            children = self._children(owner)
            key, rest = _first_key(children, parts)
            if key is None:
                if not new or not isinstance(children, dict):
                    above = path.split(".")[: -len(parts)]
                    raise UnknownPath(path, ".".join(above) if new else None)
                key, rest, value = parts[0], [], self._in_sections(parts[1:], value)
            if not rest:
                self._assign(owner, key, value)
                return
            if new and self._is_null(children[key]):
                self._assign(owner, key, {})
            owner, parts = self._section(owner, key), rest

    @abstractmethod
    def text(self) -> str:
        """Return the content of the file."""

    def _children(self, owner: Any) -> Any:
        """Return the mapping or list inside a section; anything else for a value that is no section."""
        return owner

    def _is_null(self, child: Any) -> bool:
        return child is None

    def _in_sections(self, names: Sequence[str], value: Any) -> Any:
        """Return a value nested in new sections, the first name outermost."""
        for name in reversed(names):
            value = {name: value}
        return value

    def _assign(self, owner: Any, key: Any, value: Any) -> None:
        owner[key] = value

    def _section(self, owner: Any, key: Any) -> Any:
        """Return a section in which a value is about to be set."""
        return owner[key]


class JsonDocument(Document):
    """JSON file."""

    def __init__(self, text: str) -> None:
        super().__init__(json.loads(text) if text.strip() else {})

    def text(self) -> str:
        return json.dumps(self._content, indent=2, ensure_ascii=False) + "\n"


class TomlDocument(Document):
    """TOML file; comments stay. TOML has no null: a key whose value is null is left out."""

    def __init__(self, text: str) -> None:
        super().__init__(tomlkit.parse(text))

    def _in_sections(self, names: Sequence[str], value: Any) -> Any:
        return super()._in_sections(names[:-1], {}) if names and value is None else super()._in_sections(names, value)

    def _assign(self, owner: Any, key: Any, value: Any) -> None:
        if value is None and isinstance(owner, dict):
            owner.pop(key, None)
            return
        try:
            owner[key] = value
        except tomlkit.exceptions.ConvertError:
            raise ValueError("TOML has no null; remove it from the list or section") from None

    def text(self) -> str:
        return tomlkit.dumps(self._content)


class YamlDocument(Document):
    """YAML file, as its nodes. Scalars that are not set keep their spelling, so that no other YAML version reads them
    differently; comments are lost."""

    def __init__(self, text: str) -> None:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        super().__init__(root if root is not None else yaml.MappingNode("tag:yaml.org,2002:map", []))

    def paths(self) -> Iterator[str]:
        return _paths(self._plain(self._content), "")

    def text(self) -> str:
        return yaml.serialize(self._content, Dumper=yaml.SafeDumper, allow_unicode=True)

    def _children(self, owner: yaml.Node) -> Any:
        """Return a mapping's nodes by key, with those that ``<<`` merges, or a list's nodes; None for a scalar."""
        if isinstance(owner, yaml.SequenceNode):
            return list(owner.value)
        if not isinstance(owner, yaml.MappingNode):
            return None
        found: dict[str, yaml.Node] = {}
        for key, value in owner.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for each in merged:
                    found = {**(self._children(each) or {}), **found}
        return {**found, **{key.value: value for key, value in owner.value if isinstance(key.value, str)}}

    def _is_null(self, child: yaml.Node) -> bool:
        return child.tag == "tag:yaml.org,2002:null"

    def _assign(self, owner: yaml.Node, key: Any, value: Any) -> None:
        node = value if isinstance(value, yaml.Node) else _represented(value)
        if isinstance(owner, yaml.SequenceNode):
            owner.value[key] = node
            return
        places = [place for place, (known, _) in enumerate(owner.value) if known.value == key]
        if places:  # of a key that is there twice, the last one counts
            owner.value[places[-1]] = owner.value[places[-1]][0], node
        else:
            owner.value.append((_represented(key), node))

    def _section(self, owner: yaml.Node, key: Any) -> yaml.Node:
        section: yaml.Node = copy.deepcopy(self._children(owner)[key])  # an alias may share it with another path
        self._assign(owner, key, section)
        return section

    def _plain(self, node: yaml.Node) -> Any:
        """Return the mappings and lists of a node, without its values."""
        children = self._children(node)
        if isinstance(node, yaml.MappingNode):
            return {key: self._plain(each) for key, each in children.items() if key != "<<"}
        return [self._plain(each) for each in children] if isinstance(node, yaml.SequenceNode) else None


def read_document(text: str, file_format: str) -> Document:
    """Parse the text of a config file, which may be empty, in the format ``yaml``, ``json`` or ``toml``.

    Raises:
        ValueError: The text is not in this format; the message names the place of the mistake.
    """
    formats: dict[str, Callable[[str], Document]] = {"yaml": YamlDocument, "json": JsonDocument, "toml": TomlDocument}
    try:
        return formats[file_format](text)
    except (yaml.YAMLError, json.JSONDecodeError, tomllib.TOMLDecodeError, tomlkit.exceptions.TOMLKitError) as error:
        place = re.sub(r"\s+", " ", str(error))
        raise ValueError(f"is not valid {file_format.upper()} ({place})") from error


def file_format(file: ConfigFile) -> str | None:
    """Return the format of a config file; None if it cannot be told from the name."""
    return file.format or SUFFIXES.get(Path(file.source or "").suffix.lower())


def file_name(name: str, file: ConfigFile) -> str:
    """Return the name of a trial's own file: ``config.yaml`` for the file ``config``."""
    suffix = Path(file.source).suffix if file.source is not None else ""
    return name + (suffix if suffix in SUFFIXES else f".{file_format(file)}")


def with_values(document: Document, values: Mapping[str, Any], lookup: Lookup) -> Document:
    """Set the values of a config file, and return it.

    Raises:
        UnknownPath: The source has no such path.
    """
    for path, value in values.items():
        document.set(path.removeprefix(NEW), filled(value, lookup), new=path.startswith(NEW))
    return document


def write_files(files: Mapping[str, ConfigFile], folder: Path, lookup: Lookup) -> None:
    """Write a trial's config files into a folder, each complete or not at all.

    Raises:
        OSError: A source cannot be read.
        ValueError: A source cannot be parsed, or has no such path.
    """
    for name, file in files.items():
        text = Path(file.source).expanduser().read_text(encoding="utf-8-sig") if file.source is not None else ""
        try:
            content = with_values(read_document(text, file_format(file) or "yaml"), file.values, lookup).text()
        except UnknownPath as error:
            raise ValueError(f"task.files.{name}.values: {file.source} has no {error.path}") from error
        except ValueError as error:
            raise ValueError(f"task.files.{name}.source={file.source}: {error}") from error
        with atomic_write(folder / file_name(name, file)) as path:
            path.write_text(content, encoding="utf-8")


def _paths(value: Any, path: str) -> Iterator[str]:
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        own = f"{path}.{key}" if path else str(key)
        yield own
        yield from _paths(each, own)


def _first_key(owner: Any, parts: list[str]) -> tuple[Any, list[str]]:
    """Return the longest key of a mapping or list with which a path begins, and the rest of the path; None and the path
    if there is none."""
    if isinstance(owner, list):
        is_item = parts[0].isdecimal() and int(parts[0]) < len(owner)
        return (int(parts[0]), parts[1:]) if is_item else (None, parts)
    if isinstance(owner, Mapping):
        for length in range(len(parts), 0, -1):
            if (key := ".".join(parts[:length])) in owner:
                return key, parts[length:]
    return None, parts


class _Representer(yaml.representer.SafeRepresenter):
    """Quotes texts that YAML 1.2 reads as numbers and PyYAML, a YAML 1.1 library, does not."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "'" if _NUMBER.fullmatch(data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(str, _Representer.represent_str)
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+")


def _represented(value: Any) -> yaml.Node:
    return _Representer(default_flow_style=False).represent_data(value)
