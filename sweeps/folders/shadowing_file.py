"""Detects files in the working folder that Python imports instead of a package of the same name."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from sweeps.errors import UserError

IMPORTED = ("ray", "mlflow", "optuna", "torch", "numpy", "pandas", "pyarrow", "sqlalchemy", "pydantic", "sklearn")
"""Packages that every sweep imports."""


def check_working_folder() -> None:
    """Check that no file in the working folder shadows a package.

    Raises:
        UserError: A file of the working folder would be imported instead of a package that every sweep imports.
    """
    for name in IMPORTED:
        for file in (Path.cwd() / f"{name}.py", Path.cwd() / name / "__init__.py"):
            if file.is_file():
                raise UserError(describe_shadowing(file))


def describe_shadowing(file: Path) -> str:
    """Return the message for a file that is imported instead of a package."""
    name = file.parent.name if file.name == "__init__.py" else file.stem
    return f"{file}: has the name of the package {name}, and Python imports it instead; rename it"


def shadowing_file(error: BaseException) -> Path | None:
    """Return the file, such as ``ray.py``, that shadows a package and so caused an import error; None for any other
    error."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        name = _module_of(each)
        module = sys.modules.get(name)
        file = Path(str(getattr(module, "__file__", None) or ""))
        home = file.parent.parent if file.name == "__init__.py" else file.parent
        if module is not None and home == Path.cwd() and _is_elsewhere(name):
            return file
        each = each.__cause__ or each.__context__
    return None


def _module_of(error: BaseException) -> str:
    """Return the name of the top-level module that lacks the imported name."""
    named = error.obj if isinstance(error, AttributeError) else None
    name = named.__name__ if isinstance(named, ModuleType) else getattr(error, "name", None)
    return str(name).partition(".")[0] if isinstance(error, AttributeError | ImportError) else ""


def _is_elsewhere(name: str) -> bool:
    here = str(Path.cwd())
    paths = [each for each in sys.path if each and str(Path(each).resolve()) != here]
    return name in sys.stdlib_module_names or PathFinder.find_spec(name, paths) is not None
