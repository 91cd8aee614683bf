"""Imports and calls users' own code by its import path."""

from __future__ import annotations

import contextlib
import inspect
from importlib import import_module
from typing import Any


def call_target(key: str, target: str, arguments: dict[str, Any]) -> Any:
    """Call ``package.module.name`` with keyword arguments, and return the result. Messages name the section ``key`` of
    the config that has the path.

    Raises:
        ValueError: The path cannot be imported, or the arguments do not fit; the message names the key.

    Example:
        >>> call_target("model", "fractions.Fraction", {"numerator": 1, "denominator": 4})
        Fraction(1, 4)
        >>> call_target("model", "builtins.dict", {"size": 4})
        {'size': 4}
    """
    function = import_target(key, target)
    try:
        with contextlib.suppress(ValueError):  # compiled code may have no signature
            inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{key}.arguments={arguments} do not fit {key}._target_={target}: {error}") from error
    return function(**arguments)


def import_target(key: str, target: str) -> Any:
    """Import the object ``package.module.name``. Messages name the section ``key`` of the config that has the path.

    Raises:
        ValueError: The path cannot be imported; the message names the key.

    Example:
        >>> import_target("task", "math.sqrt")(9.0)
        3.0
    """
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}._target_={target} cannot be imported ({error}); correct the path") from error
