"""Import paths that a config may run (``_target_``)."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from sweeps.validate.source_checks import find_module, parsed_module

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


def refusal_of_target(target: object, allowed: Sequence[str]) -> str | None:
    """Return why an import path may not be run; None if it may. Allowed are the listed paths and, for
    ``package.module.*``, the public functions and classes that this module defines, not those that it only imports."""
    if not isinstance(target, str) or not IMPORT_PATH.fullmatch(target):
        return "is not an import path"
    if target in allowed:
        return None
    module, _, name = target.rpartition(".")
    if f"{module}.*" not in allowed or name.startswith("_"):
        return "is not among the import paths that the service allows (access.allowed_targets)"
    if name not in _defined_in(module):
        return f"is not defined in {module} itself; the service allows no more of it (access.allowed_targets)"
    return None


def _defined_in(module: str) -> set[str]:
    """Return the names of a module's functions and classes, read from its source. Its parent packages are imported."""
    tree = parsed_module(find_module(module))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)} if tree else set()
