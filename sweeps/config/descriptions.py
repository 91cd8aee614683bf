"""Descriptions of the schema: the docstrings below a section's fields, and the types that a value may have.

pydantic reads docstrings itself if told to (``use_attribute_docstrings``), but then at every import, for all sections:
that took 0.2 of 0.7 seconds in which the schema was loaded, in every process. Here they are read on demand.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any


@functools.cache
def field_descriptions(section: type) -> Mapping[str, str]:
    """Return the docstring of each documented field of a section of the schema, including its base classes, by name;
    none for a class whose source cannot be read."""
    found: dict[str, str] = {}
    for each in reversed(section.__mro__):
        if "__annotations__" not in vars(each):
            continue
        try:
            (defined,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except (OSError, SyntaxError):
            continue
        assert isinstance(defined, ast.ClassDef)
        for field, below in itertools.pairwise(defined.body):
            text = ast.get_docstring(ast.Module([below], []))
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and text is not None:
                found[field.target.id] = text
    return found


def members(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union, which may be optional and annotated."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from members(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from members(member)
    else:
        yield annotation
