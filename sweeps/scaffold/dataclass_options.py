"""Reads the options that command-line libraries derive from dataclasses, such as HfArgumentParser and tyro."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from sweeps.scaffold.option import A_FLAG, MISSING, Option
from sweeps.scaffold.syntax import constants_of, literal, name_of

DATACLASS_PARSERS = {"HfArgumentParser", "TrlParser", "cli", "parse", "wrap"}
"""Calls that derive options from a dataclass: transformers, trl, tyro, simple_parsing, draccus, pyrallis."""

HUGGINGFACE = (
    Option("learning_rate", "float", 5e-5),
    Option("weight_decay", "float", 0.0),
    Option("per_device_train_batch_size", "int", 8),
    Option("lr_scheduler_type", "str", "linear", ("linear", "cosine", "constant")),
    Option("max_grad_norm", "float", 1.0),
    Option("num_train_epochs", "float", 3.0),
    Option("max_steps", "int", -1),
    Option("seed", "int", 42),
)
"""Options that every ``TrainingArguments`` of transformers has, with its defaults."""
HUGGINGFACE_CLASSES = ("TrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig")
PLAIN_TYPES = ("float", "int", "str", "bool")


def read_options(tree: ast.Module) -> tuple[list[Option], list[str]]:
    """Return the options of the dataclasses that the script passes to a parser, and descriptions of those that could
    not be read."""
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    constants = constants_of(tree)
    options: list[Option] = []
    notes: list[str] = []
    for name, is_tyro in _parsed(tree):
        if name in classes:
            options += options_of_class(classes[name], classes, constants, is_tyro=is_tyro)
        elif name in functions and is_tyro:
            options += _of_function(functions[name], constants)
        elif name.endswith(HUGGINGFACE_CLASSES):
            options += HUGGINGFACE
            notes.append(f"{name} is a class of another package: of its options the usual ones are proposed")
        elif name:
            notes.append(f"{name} is defined elsewhere: its options are not read")
    return options, notes


def _parsed(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names of the classes or functions passed to a parser, and whether the parser is tyro (nested options,
    flags for bools)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in DATACLASS_PARSERS:
            is_tyro = name_of(node.func) not in ("HfArgumentParser", "TrlParser")
            given = [*node.args[:1], *(each.value for each in node.keywords if each.arg in ("dataclass_types", "f"))]
            for each in given:
                for name in each.elts if isinstance(each, ast.Tuple | ast.List) else [each]:
                    if isinstance(name, ast.Name | ast.Attribute):
                        yield name_of(name), is_tyro
        elif isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:  # @draccus.wrap() def main(config: Config)
                function = decorator.func if isinstance(decorator, ast.Call) else decorator
                if name_of(function) == "wrap" and node.args.args and node.args.args[0].annotation is not None:
                    yield name_of(node.args.args[0].annotation), True


def options_of_class(
    node: ast.ClassDef,
    classes: Mapping[str, ast.ClassDef],
    constants: Mapping[str, Any],
    prefix: str = "",
    *,
    is_tyro: bool = False,
) -> list[Option]:
    """Return the options of a dataclass: those of its bases first, nested ones with dots."""
    options: dict[str, Option] = {}
    for base in node.bases:
        name = name_of(base)
        if name in classes and name != node.name:
            inherited = options_of_class(classes[name], classes, constants, prefix, is_tyro=is_tyro)
            options |= {option.name: option for option in inherited}
        elif name.endswith(HUGGINGFACE_CLASSES):
            options |= {option.name: option for option in HUGGINGFACE}
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = prefix + statement.target.id
        nested = name_of(statement.annotation)
        if nested in classes and nested != node.name and prefix.count(".") < 4:
            for option in options_of_class(classes[nested], classes, constants, f"{name}.", is_tyro=is_tyro):
                options[option.name] = option
        elif nested != "ClassVar":
            options[name] = _option(name, statement.annotation, statement.value, constants, is_tyro=is_tyro)
    return list(options.values())


def _of_function(node: ast.FunctionDef, constants: Mapping[str, Any]) -> list[Option]:
    """Return the options that tyro derives from a function's parameters."""
    given = [*node.args.posonlyargs, *node.args.args]
    defaults = [*[None] * (len(given) - len(node.args.defaults)), *node.args.defaults, *node.args.kw_defaults]
    return [
        _option(each.arg, each.annotation, default, constants, is_tyro=True)
        for each, default in zip([*given, *node.args.kwonlyargs], defaults, strict=True)
    ]


def _option(
    name: str,
    annotation: ast.expr | None,
    value: ast.expr | None,
    constants: Mapping[str, Any],
    *,
    is_tyro: bool,
) -> Option:
    type_name, choices = _type_of(annotation)
    has_default = value is not None
    if isinstance(value, ast.Call):  # field(default=..., metadata=...)
        given = {each.arg: each.value for each in value.keywords}
        has_default = "default" in given or "default_factory" in given or name_of(value.func) not in ("field", "Field")
        value = given.get("default")
    default = MISSING if value is None else literal(value, constants)
    if default == "???" or (value is not None and name_of(value) == "MISSING"):  # a mandatory value of OmegaConf
        default, has_default = MISSING, type_name is None
    excluded = None
    if type_name == "bool" and is_tyro:
        excluded = A_FLAG
    elif type_name is None and not isinstance(default, int | float | str):
        excluded = "is not a single number or text"
    return Option(name, type_name, default, choices, required=not has_default, excluded=excluded)


def _type_of(annotation: ast.expr | None) -> tuple[str | None, tuple[Any, ...]]:
    """Return the plain type and the choices of an annotation, such as ``float | None`` or ``Literal["a", "b"]``."""
    found: tuple[str | None, tuple[Any, ...]] = (None, ())
    match annotation:
        case ast.Constant(value=str(text)):
            with contextlib.suppress(SyntaxError):
                found = _type_of(ast.parse(text, mode="eval").body)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            found = next((each for each in (_type_of(left), _type_of(right)) if each[0]), found)
        case ast.Subscript(value=value, slice=inside) if name_of(value) == "Literal":
            values = literal(inside)
            choices = values if isinstance(values, tuple) else (values,)
            found = type(choices[0]).__name__, choices
        case ast.Subscript(value=value, slice=inside) if name_of(value) in ("Optional", "Annotated", "Final"):
            found = _type_of(inside.elts[0] if isinstance(inside, ast.Tuple) else inside)
        case ast.Name(id=name) if name in PLAIN_TYPES:
            found = name, ()
    return found
