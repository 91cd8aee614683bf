"""Reads from a user's source what it takes. Importing it instead would run it, and may take seconds (torch)."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
READS_A_KEY = ("get", "pop", "setdefault")
"""Methods of a mapping that read the key which is their first argument."""
MOST_IMPORTS = 10
"""Modules that are followed to find where a name is defined."""


@dataclass(frozen=True)
class Definition:
    """A function or class, and the module whose names it sees."""

    node: Function | ast.ClassDef
    module: str


def find_module(module: str) -> ModuleSpec | None:
    """Where a module is, without importing it (packages above it are); the working folder is searched, too."""
    working_folder = str(Path.cwd())
    if working_folder not in sys.path:  # a module beside the config is importable on the workers, too
        sys.path.insert(0, working_folder)
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def find_definition(target: str) -> Definition | None:
    """The source behind ``package.module.name``, through imports; None where it cannot be told without running it."""
    for _ in range(MOST_IMPORTS):
        module, _, name = target.rpartition(".")
        spec = find_module(module) if module else None
        tree = parsed_module(spec)
        bindings = list(_bindings(tree, name)) if tree is not None else []
        if spec is None or tree is None or len(bindings) != 1 or bindings[0] not in tree.body:
            return None
        match bindings[0]:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as node:
                return Definition(node, module)
            case ast.ImportFrom(module=source, level=level, names=names):
                package = module if spec.submodule_search_locations else module.rpartition(".")[0]
                whole = "." * level + (source or "")
                try:
                    origin = importlib.util.resolve_name(whole, package) if level else whole
                except ImportError:
                    return None
                original = next(each.name for each in names if (each.asname or each.name) == name)
                target = f"{origin}.{original}"
            case _:
                return None
    return None


def source_signature(target: str) -> inspect.Signature | None:
    """The signature of a function, or of a class as it is called; None where the source does not tell."""
    found = find_definition(target)
    if found is None or found.node.decorator_list:
        return None
    if not isinstance(found.node, ast.ClassDef):
        return _signature(found.node.args)
    node, methods = found.node, {each.name: each for each in found.node.body if isinstance(each, Function)}
    if node.keywords or "__new__" in methods:  # a metaclass may do anything
        return None
    if "__init__" in methods:
        return None if methods["__init__"].decorator_list else _signature(methods["__init__"].args, bound=1)
    if len(node.bases) == 1 and isinstance(node.bases[0], ast.Name):
        return source_signature(f"{found.module}.{node.bases[0].id}")
    return None


def keys_read(target: str) -> set[str] | None:
    """Keys that a function reads of the one mapping that it is called with; None where it may read any."""
    found = find_definition(target)
    if found is None or isinstance(found.node, ast.ClassDef) or found.node.decorator_list:
        return None
    parameters = [*found.node.args.posonlyargs, *found.node.args.args]
    return _keys(found, parameters[0].arg, set()) if parameters else set()


def _keys(found: Definition, parameter: str, seen: set[str]) -> set[str] | None:
    """Keys read of one parameter of a function, and of those that it is handed on to in the same module."""
    assert not isinstance(found.node, ast.ClassDef)
    parents, keys = parents_of(found.node), set[str]()
    for node in ast.walk(found.node):
        if isinstance(node, ast.arg) and node.arg == parameter and parents[node] is not found.node.args:
            return None  # another one of that name, further in
        if not isinstance(node, ast.Name) or node.id != parameter:
            continue
        match parents[node]:
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))) if value is node:
                keys.add(key)
            case ast.Attribute(attr=method) as attribute if method in READS_A_KEY:
                match parents[attribute]:
                    case ast.Call(func=function, args=[ast.Constant(value=str(key)), *_]) if function is attribute:
                        keys.add(key)
                    case _:
                        return None
            case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()]):
                keys.add(key)
            case ast.Call(func=ast.Name(id=name), args=arguments) if node in arguments:
                handed_on = _keys_of_call(found.module, name, arguments.index(node), seen)
                if handed_on is None:
                    return None
                keys |= handed_on
            case _:
                return None
    return keys


def _keys_of_call(module: str, name: str, position: int, seen: set[str]) -> set[str] | None:
    callee = find_definition(f"{module}.{name}")
    if callee is None or isinstance(callee.node, ast.ClassDef) or callee.node.decorator_list:
        return None
    parameters = [*callee.node.args.posonlyargs, *callee.node.args.args]
    if position >= len(parameters):
        return None
    key = f"{callee.module}.{name}({position})"
    if key in seen:
        return set()
    return _keys(callee, parameters[position].arg, seen | {key})


def parsed_module(spec: ModuleSpec | None) -> ast.Module | None:
    """A module's syntax; None where it has no source that can be read."""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return parsed_file(Path(spec.origin))


def parsed_file(path: Path) -> ast.Module | None:
    """The same of a file."""
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _bindings(tree: ast.Module, name: str) -> Iterator[ast.stmt]:
    """Statements outside of functions and classes that give a name its meaning."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if node.name == name:
                    yield node
                continue
            case ast.Import() | ast.ImportFrom() if any((each.asname or each.name) == name for each in node.names):
                yield node
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                    yield node
        waiting += ast.iter_child_nodes(node)


def _signature(arguments: ast.arguments, bound: int = 0) -> inspect.Signature:
    """
    Args:
        arguments: As the source has them.
        bound: Of the first ones, how many the caller does not give (``self``).
    """
    of_kind = inspect.Parameter
    given = [*arguments.posonlyargs, *arguments.args]
    first_default = len(given) - len(arguments.defaults)
    parameters = [
        of_kind(
            each.arg,
            of_kind.POSITIONAL_ONLY if index < len(arguments.posonlyargs) else of_kind.POSITIONAL_OR_KEYWORD,
            default=... if index >= first_default else of_kind.empty,
        )
        for index, each in enumerate(given)
    ][bound:]
    if arguments.vararg is not None:
        parameters.append(of_kind(arguments.vararg.arg, of_kind.VAR_POSITIONAL))
    parameters += [
        of_kind(each.arg, of_kind.KEYWORD_ONLY, default=of_kind.empty if default is None else ...)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        parameters.append(of_kind(arguments.kwarg.arg, of_kind.VAR_KEYWORD))
    return inspect.Signature(parameters)


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """The node around each node."""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
