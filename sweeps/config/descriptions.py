"""Descriptions of a section's keys: the docstrings below its fields, read from the source on demand.

pydantic reads them itself if told to (``use_attribute_docstrings``), but then at every import, for all sections: that
took 0.2 of 0.7 seconds in which the schema was loaded, in every process.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Mapping


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
