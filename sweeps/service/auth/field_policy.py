"""Values of a config that could reach beyond the training, found by the ``Reach`` that the schema's fields declare."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sweeps.config import Reach, SweepConfig
from sweeps.config.descriptions import members
from sweeps.errors import ConfigError


@dataclass(frozen=True)
class ReachingValue:
    """A value of a config, with its reach."""

    path: str
    reach: Reach
    value: Any


def reaching_values(config: Mapping[str, Any]) -> Iterator[ReachingValue]:
    """Yield every value of a config whose field declares a reach. The config may be partial and need not be valid:
    where the schema offers a choice (such as the kind of model), a value is yielded for each alternative.

    Raises:
        ConfigError: A field neither declares a reach nor is limited to numbers, fixed words and sections.
    """
    return _within(SweepConfig, config, "")


def _within(annotation: Any, value: Any, path: str) -> Iterator[ReachingValue]:
    if not isinstance(value, Mapping):
        return  # the name of an option in a config group
    for section in _sections(annotation):
        for name, field in section.__pydantic_fields__.items():
            key = field.alias or name
            if key not in value:
                continue
            where = f"{path}.{key}" if path else key
            reach = _reach(field)
            if reach is not None:
                yield ReachingValue(where, reach, value[key])
                yield from _within_items(field.annotation, value[key], where)
            elif _is_open(field.annotation):
                raise ConfigError(f"{where}: the field {section.__name__}.{name} declares no reach; this is a bug")
            else:
                yield from _within(field.annotation, value[key], where)


def _within_items(annotation: Any, value: Any, path: str) -> Iterator[ReachingValue]:
    """Yield the values of a list's sections, such as those of ``search.warm_start``."""
    if typing.get_origin(annotation) is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _within(typing.get_args(annotation)[0], item, f"{path}.{index}")


def _reach(field: Any) -> Reach | None:
    return next((each for each in field.metadata if isinstance(each, Reach)), None)


def _sections(annotation: Any) -> Iterator[Any]:
    """Yield the classes of the schema among the members of a union, or the type itself if it is one."""
    return (each for each in members(annotation) if hasattr(each, "__pydantic_fields__"))


def _is_open(annotation: Any) -> bool:
    """Whether a type allows more than numbers, fixed words, sections, and values declared to reach nothing."""
    if annotation in (int, float, type(None)) or hasattr(annotation, "__pydantic_fields__"):
        return False
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return False
    if origin is typing.Annotated:
        return Reach.NOTHING not in annotation.__metadata__ and _is_open(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType, list):
        return any(_is_open(member) for member in typing.get_args(annotation))
    return True
