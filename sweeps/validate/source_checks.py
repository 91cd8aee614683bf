"""Reads the signatures of users' code, and the config keys that it uses, from its source. Importing it would run it,
and may take seconds (torch)."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec
from pathlib import Path

from sweeps.errors import ConfigError

Function = ast.FunctionDef | ast.AsyncFunctionDef
READS_A_KEY = ("get", "pop", "setdefault")
"""Methods of a mapping that read the key given as their first argument."""
MAX_IMPORTS = 10
"""Maximum number of imports that are followed to the definition of a name."""


@dataclass(frozen=True)
class Definition:
    """Function or class, with the module that defines it."""

    node: Function | ast.ClassDef
    module: str


def find_module(module: str) -> ModuleSpec | None:
    """Find a module without importing it (its parent packages are imported); also searches the working folder.

    Raises:
        ConfigError: A parent package cannot be imported, since its code has an error.
    """
    working_folder = str(Path.cwd())
    if working_folder not in sys.path:  # workers can import a module beside the config, too
        sys.path.insert(0, working_folder)
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    except Exception as error:
        raise ConfigError(
            f"{module}: its package cannot be imported ({type(error).__name__}: {error}); fix it"
        ) from error


def find_definition(target: str) -> Definition | None:
    """Find the source of ``package.module.name``, following imports; None if only running the code could reveal it."""
    for _ in range(MAX_IMPORTS):
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
                imported = "." * level + (source or "")
                try:
                    origin = importlib.util.resolve_name(imported, package) if level else imported
                except ImportError:
                    return None
                original = next(each.name for each in names if (each.asname or each.name) == name)
                target = f"{origin}.{original}"
            case _:
                return None
    return None


def source_signature(target: str) -> inspect.Signature | None:
    """Return the signature of a function, or of calling a class; None if the source does not show it."""
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
    """Return the keys that a function reads from its mapping argument; None if it may read any."""
    found = find_definition(target)
    if found is None or isinstance(found.node, ast.ClassDef) or found.node.decorator_list:
        return None
    parameters = [*found.node.args.posonlyargs, *found.node.args.args]
    return _keys(found, parameters[0].arg, set()) if parameters else set()


def _keys(found: Definition, parameter: str, seen: set[str]) -> set[str] | None:
    """Return the keys that a function reads from a parameter, including in functions of the same module to which it
    passes the parameter."""
    assert not isinstance(found.node, ast.ClassDef)
    parents, keys = parents_of(found.node), set[str]()
    for node in ast.walk(found.node):
        if isinstance(node, ast.arg) and node.arg == parameter and parents[node] is not found.node.args:
            return None  # a nested function has a parameter of this name
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
                read_there = _keys_of_call(found.module, name, arguments.index(node), seen)
                if read_there is None:
                    return None
                keys |= read_there
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
    """Return the syntax tree of a module; None if its source cannot be read."""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return parsed_file(Path(spec.origin))


def parsed_file(path: Path) -> ast.Module | None:
    """Return the syntax tree of a file; None if it cannot be read."""
    try:
        return parsed(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


@lru_cache(maxsize=64)
def parsed(source: bytes) -> ast.Module:
    """Parse a source; cached, since the checks look up many names in the same file."""
    return ast.parse(source)


def _bindings(tree: ast.Module, name: str) -> Iterator[ast.stmt]:
    """Yield the statements outside functions and classes that bind a name."""
    for node in at_module_level(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                yield node
            case ast.Import() | ast.ImportFrom() if any((each.asname or each.name) == name for each in node.names):
                yield node
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                    yield node


def at_module_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module outside functions and classes, in no order. A recursion would not reach the end of
    very long expressions."""
    nodes = [node]
    while nodes:
        for child in ast.iter_child_nodes(nodes.pop()):
            yield child
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                nodes.append(child)


def is_plain_value(tree: ast.Module, name: str) -> bool:
    """Whether a module assigns a number, text, list or mapping to a name, and nothing else."""
    match list(_bindings(tree, name)):
        case [ast.Assign(value=value) | ast.AnnAssign(value=value)] as bindings if bindings[0] in tree.body:
            is_none = isinstance(value, ast.Constant) and value.value is None  # a function may set it later
            kinds = ast.Constant | ast.JoinedStr | ast.List | ast.Tuple | ast.Set | ast.Dict
            return isinstance(value, kinds) and not is_none
    return False


def _signature(arguments: ast.arguments, bound: int = 0) -> inspect.Signature:
    """Return the signature of a function from its syntax, without the first arguments that are ``bound`` (``self``)."""
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


@lru_cache(maxsize=64)
def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """Return the parent of each node."""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
