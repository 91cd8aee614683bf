"""Import paths that a config may run (``_target_``)."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Sequence
from pathlib import Path

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


def refusal_of_target(target: object, allowed: Sequence[str]) -> str | None:
    """Return the reason why an import path may not be run; None if it may. The listed paths are allowed and, for
    ``package.module.*``, the public functions and classes that this module defines, but not those that it only
    imports."""
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
    working_folder = str(Path.cwd())
    if working_folder not in sys.path:  # as in the driver
        sys.path.insert(0, working_folder)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return set()
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return set()
    tree = ast.parse(Path(spec.origin).read_bytes())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
