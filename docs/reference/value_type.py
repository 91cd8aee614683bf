"""Types of config keys in words, and an example value for each, from their annotations."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import annotated_types
from pydantic.fields import FieldInfo

NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text", type(None): "null", Any: "any value"}
HUGE = 2**31
"""Bounds beyond it only keep numbers within 64 bits, and are left out."""


def members(annotation: Any) -> list[Any]:
    """Return the types of a union, each with the annotations around it."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *metadata = typing.get_args(annotation)
        found = members(inner)
        if len(found) > 1:
            return found
        return [typing.Annotated[found[0], *metadata]]
    if origin in (typing.Union, types.UnionType):
        return [member for each in typing.get_args(annotation) for member in members(each)]
    return [annotation]


def sections(annotation: Any) -> list[type]:
    """Return the dataclasses that a key's value may be."""
    return [each for each in map(bare, members(annotation)) if dataclasses.is_dataclass(each)]


def bare(annotation: Any) -> Any:
    """Return a type without the annotations around it."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation


def in_words(annotation: Any, metadata: list[Any]) -> str:
    """Describe the type of a key: ``whole number, at least 1``.

    Args:
        annotation: Type of its field.
        metadata: Constraints that stand beside the type.
    """
    parts = [_member(each) for each in members(annotation) if bare(each) is not type(None)]
    limits = bounds(metadata)
    return " or ".join(dict.fromkeys(parts)) + (f", {limits}" if limits else "")


def _member(annotation: Any) -> str:
    inner = bare(annotation)
    metadata = [] if inner is annotation else list(typing.get_args(annotation)[1:])
    limits = bounds(metadata)
    return _plain(inner) + (f", {limits}" if limits else "")


def _plain(inner: Any) -> str:
    origin, arguments = typing.get_origin(inner), typing.get_args(inner)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is list:
        return f"list of: {in_words(arguments[0], [])}"
    if origin is tuple:
        return f"list of: {in_words(arguments[0], [])}"
    if origin in (dict, Mapping) or inner is dict:
        return "mapping" + (f" of names to: {in_words(arguments[1], [])}" if len(arguments) > 1 else "")
    if dataclasses.is_dataclass(inner):
        return "section"
    return NAMES.get(inner, getattr(inner, "__name__", str(inner)))


def bounds(metadata: list[Any]) -> str:
    """Describe the constraints of a value: ``greater than 0, below 1``."""
    words = []
    for each in _constraints(metadata):
        match each:
            case annotated_types.Gt(gt=limit) if abs(limit) < HUGE:
                words.append(f"greater than {limit:g}")
            case annotated_types.Ge(ge=limit) if abs(limit) < HUGE:
                words.append(f"at least {limit:g}")
            case annotated_types.Lt(lt=limit) if abs(limit) < HUGE:
                words.append(f"below {limit:g}")
            case annotated_types.Le(le=limit) if abs(limit) < HUGE:
                words.append(f"at most {limit:g}")
    return ", ".join(words)


def _constraints(metadata: list[Any]) -> Iterator[Any]:
    for each in metadata:
        if isinstance(each, FieldInfo):
            yield from _constraints(each.metadata)
        else:
            yield each


def example_value(annotation: Any, metadata: list[Any], default: Any) -> Any:
    """Return a value that the key takes and that is not its default; None if the type alone suggests none."""
    for member in members(annotation):
        inner = bare(member)
        limits = list(metadata) + ([] if inner is member else list(typing.get_args(member)[1:]))
        value = _example(inner, limits, default)
        if value is not None and value != default:
            return value
    return None


def _example(inner: Any, metadata: list[Any], default: Any) -> Any:
    if inner is bool:
        return default is not True
    if typing.get_origin(inner) is Literal:
        return next((value for value in typing.get_args(inner) if value != default), None)
    if inner in (int, float):
        return _number(inner, metadata, default)
    if typing.get_origin(inner) is list and typing.get_origin(bare(typing.get_args(inner)[0])) is Literal:
        return [typing.get_args(bare(typing.get_args(inner)[0]))[0]]
    return None


def _number(kind: type, metadata: list[Any], default: Any) -> int | float | None:
    constraints = list(_constraints(metadata))
    start = default if isinstance(default, int | float) and not isinstance(default, bool) else 0
    for candidate in (start * 2, start / 2, start + 1, 0.5, 4, 1, 100):
        value = kind(candidate)
        if value != default and all(_holds(value, each) for each in constraints):
            return typing.cast("int | float", value)
    return None


def _holds(value: float, constraint: Any) -> bool:
    match constraint:
        case annotated_types.Gt(gt=limit):
            return bool(value > limit)
        case annotated_types.Ge(ge=limit):
            return bool(value >= limit)
        case annotated_types.Lt(lt=limit):
            return bool(value < limit)
        case annotated_types.Le(le=limit):
            return bool(value <= limit)
    return True
