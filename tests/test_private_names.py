"""Private names of libraries, in ``sweeps/compat`` and ``sweeps_train/compat`` alone: a release that moves one breaks
a contract test of tests/compat, and nothing else."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from syntax import statements

COMPAT = ("sweeps/compat/", "src/sweeps_train/compat/")
OURS = ("sweeps", "sweeps_train")

# Names with an underscore that their libraries document.
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_mapping", "_replace"}
PUBLIC |= {"_ipython_display_", "_repr_html_", "_repr_mimebundle_"}  # asked for by IPython

File = tuple[str, ast.Module]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in PUBLIC


pytestmark = pytest.mark.filterwarnings("ignore")  # libraries are imported to look at their classes


@pytest.fixture(scope="module")
def files(checkout: Path) -> list[File]:
    """Name and syntax of every file that may touch no private name."""
    paths = [path for folder in ("sweeps", "src") for path in sorted((checkout / folder).rglob("*.py"))]
    names = [path.relative_to(checkout).as_posix() for path in paths]
    gc.disable()  # nothing of a million nodes is garbage, and to look for it takes twice as long as to parse
    parsed = [
        (name, ast.parse(path.read_text(encoding="utf-8")))
        for name, path in zip(names, paths, strict=True)
        if not name.startswith(COMPAT)
    ]
    gc.enable()
    return parsed


def listed(found: list[str]) -> str:
    return "move to sweeps/compat or sweeps_train/compat, with a contract test in tests/compat:\n" + "\n".join(found)


def test_no_import_names_a_private_module_or_member(files: list[File]) -> None:
    found = [
        f"{file}:{node.lineno}: {name}"
        for file, tree in files
        for node, name in _imports(tree)
        if any(is_private(part) for part in name.split("."))
    ]
    assert not found, listed(found)


def test_no_private_attribute_of_another_object_is_named_by_a_text(files: list[File]) -> None:
    """As by ``getattr`` and its like; ruff finds those that are written as attributes."""
    found = [
        f"{file}:{node.lineno}: {ast.unparse(node)}"
        for file, tree in files
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _names_private_attribute(node)
    ]
    assert not found, listed(found)


def test_the_linter_is_told_to_look_away_in_compat_only(checkout: Path, files: list[File]) -> None:
    found = [file for file, _ in files if "SLF001" in (checkout / file).read_text(encoding="utf-8")]
    assert not found, listed(found)


def test_no_class_of_ours_shares_a_private_name_with_a_library_class_above_it(files: list[File]) -> None:
    """Overrides and uses alike: a name that both have is either one, or an accident that breaks the library."""
    found = [
        f"{file}:{node.lineno}: {node.name}.{name}, which {base.__module__}.{base.__qualname__} has, too"
        for file, tree in files
        for node in statements(tree)
        if isinstance(node, ast.ClassDef) and node.bases and (names := _own_private_names(node))
        for base in _library_bases(file, tree, node)
        for name in sorted(names & _private_names(base))
    ]
    assert not found, listed(found)


def _imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    for node in statements(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names):
                yield from ((node, f"{module}.{alias.name}") for alias in names)


def _names_private_attribute(call: ast.Call) -> bool:
    match call:
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"), args=[of, ast.Constant(name), *_]
        ):
            return is_private(str(name)) and not (isinstance(of, ast.Name) and of.id in ("self", "cls"))
    return False


def _own_private_names(node: ast.AST) -> set[str]:
    """Private methods and attributes that a class defines, and those of ``self`` that its methods use."""
    names: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.ClassDef(body=body):
                for statement in body:
                    names |= _names_defined(statement)
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")), attr=attribute):
                names.add(attribute)
    return {name for name in names if is_private(name)}


def _names_defined(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {each.id for each in targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _library_bases(file: str, tree: ast.Module, node: ast.ClassDef) -> list[type]:
    """Library classes above this one, found by importing the base classes that it names."""
    found: list[type] = []
    for base in node.bases:
        name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        value = _imported(file, tree, name)
        found += value.__mro__ if isinstance(value, type) else ()
    roots = {*OURS, *sys.stdlib_module_names}
    return [each for each in found if each.__module__.partition(".")[0] not in roots]


def _imported(file: str, tree: ast.Module, name: str) -> object:
    """A name in a file: imported at its top or inside a function, or defined by the file itself."""
    first, *rest = name.split(".")
    for node in statements(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    if (alias.asname or alias.name) == first:
                        return _member(getattr(importlib.import_module(module), alias.name, None), rest)
            case ast.Import(names=names):
                for alias in names:
                    if alias.asname == first or (alias.asname is None and alias.name.partition(".")[0] == first):
                        importlib.import_module(alias.name)
                        return _member(sys.modules[alias.name if alias.asname else first], rest)
    if hasattr(builtins, first):
        return getattr(builtins, first)
    module = file.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return _member(getattr(importlib.import_module(module), first, None), rest)


def _member(value: object, names: list[str]) -> object:
    for name in names:
        value = getattr(value, name, None)
    return value


@cache
def _private_names(base: type) -> set[str]:
    """Private names that a library's class defines, or that its methods set or read on ``self``."""
    names = {name for name in vars(base) if is_private(name)}
    try:
        return names | _own_private_names(ast.parse(textwrap.dedent(inspect.getsource(base))))
    except (OSError, TypeError, SyntaxError):  # written in C
        return names
