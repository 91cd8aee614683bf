"""Keys of a config and their values, from the typed schema."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from sweeps.completion.candidate import Candidate
from sweeps.config.descriptions import field_descriptions, members


class Key(NamedTuple):
    """One key of a section."""

    help: str
    sections: list[type]
    """Dataclasses that the value may be; for other types, the key has no keys below it."""
    values: list[str]
    """Values that the key accepts, if the schema lists them."""


def complete_key(root: type, values: Mapping[str, Any], typed: str) -> list[Candidate]:
    """Return the keys that begin with the typed text, one level at a time: ``train.`` and then ``train.lr=``.

    Args:
        root: Dataclass of the whole config.
        values: Values that the YAML sets, with keys that the schema leaves open, such as ``task.arguments.lr``.
        typed: A dotted path, the last part incomplete.
    """
    *parts, begun = typed.split(".")
    prefix = "".join(f"{part}." for part in parts)
    keys = _keys_at(root, parts)
    given = _values_at(values, parts)
    found: dict[str, Candidate] = {}
    for name, key in keys.items():
        # A key such as `train.optimizer` takes a name or a section: the name is what people type.
        has_below = isinstance(given.get(name), Mapping) or bool(key.sections and not key.values)
        found[name] = Candidate(f"{prefix}{name}{'.' if has_below else '='}", key.help)
    for name, value in given.items():
        found.setdefault(name, Candidate(f"{prefix}{name}{'.' if isinstance(value, Mapping) else '='}", ""))
    return [candidate for name, candidate in found.items() if name.startswith(begun)]


def complete_value(root: type, path: str) -> list[str]:
    """Return the values that a key accepts, if the schema lists them."""
    *parts, name = path.split(".")
    key = _keys_at(root, parts).get(name)
    return [] if key is None else key.values


def keys_of(classes: list[type]) -> dict[str, Key]:
    """Return the keys of a section that may be any of these dataclasses."""
    found: dict[str, Key] = {}
    for each in classes:
        fields = getattr(each, "__pydantic_fields__", {})
        for name, field in fields.items():
            help_text = _first_sentence(field_descriptions(each).get(name))
            key = found.setdefault(field.alias or name, Key(help_text, [], []))
            key.sections.extend(section for section in _sections(field.annotation) if section not in key.sections)
            key.values.extend(value for value in _values(field.annotation) if value not in key.values)
    return found


def _keys_at(root: type, parts: list[str]) -> dict[str, Key]:
    keys = keys_of([root])
    for part in parts:
        keys = keys_of(keys[part].sections) if part in keys else {}
    return keys


def _values_at(values: Mapping[str, Any], parts: list[str]) -> Mapping[str, Any]:
    for part in parts:
        inner = values.get(part)
        values = inner if isinstance(inner, Mapping) else {}
    return values


def _sections(annotation: Any) -> list[type]:
    return [each for each in members(annotation) if isinstance(each, type) and dataclasses.is_dataclass(each)]


def _values(annotation: Any) -> list[str]:
    found: list[str] = []
    for member in members(annotation):
        if typing.get_origin(member) is Literal:
            found += [str(each) for each in typing.get_args(member)]
        elif member is bool:
            found += ["true", "false"]
    return found


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".")
