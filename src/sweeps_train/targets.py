"""Users' own code, by import path."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any


def call_target(key: str, target: str, arguments: dict[str, Any]) -> Any:
    """Calls ``package.module.name`` with the arguments.

    Args:
        key: Of the config's section that has the target: ``model``, ``data``.
        target: Import path.
        arguments: Keyword arguments.

    Raises:
        ValueError: The path leads nowhere, or the arguments do not fit; the message names the key.
    """
    function = import_target(key, target)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ValueError(f"{key}.arguments={arguments} do not fit {key}._target_={target}: {error}") from error
    return function(**arguments)


def import_target(key: str, target: str) -> Any:
    """What ``package.module.name`` leads to.

    Raises:
        ValueError: It leads nowhere; the message names the key.
    """
    module, _, name = target.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{key}._target_={target} cannot be imported ({error}); give a path that can") from error
