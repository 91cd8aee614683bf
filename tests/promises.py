"""Names that users build on: config keys, verbs and options, routes, Python names, keys of JSON, names in MLflow.

``tests/promised/`` holds the listing of each; docs/stability.md says what they promise.

Run:
    python tests/promises.py    # adds new names to the listings; those that are gone stay in them
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))  # generators of the reference

import click
import griffe
from recording import record_small_sweep
from reference import config_keys, python_functions, routes, verbs
from stores import SHARED

from sweeps import constants
from sweeps.cli import run_command
from sweeps.validate.search_checks import SYSTEM_METRICS

CHECKOUT = Path(__file__).resolve().parents[1]
PROMISED = CHECKOUT / "tests" / "promised"
CHOSEN_BY_USERS = ("params",)
"""Keys of JSON documents whose own keys are names of the user's config."""


def config() -> Iterator[str]:
    for document in config_keys.DOCUMENTS:
        for section in config_keys.all_sections(document):
            for key in section.keys:
                yield f"{document.name}: {key.path}" + (f" ({key.variant})" if key.variant else "")
            if section.variant:
                yield from (f"{document.name}: {section.path} = {kind}" for kind in section.variant.split(", "))
    conf = CHECKOUT / "conf"
    yield from (f"conf: {path.relative_to(conf).with_suffix('').as_posix()}" for path in conf.rglob("*.yaml"))


def command_line() -> Iterator[str]:
    yield from (f"exit status {status}" for status, _ in verbs.EXIT_STATUSES)
    for name, command in verbs.all_verbs():
        yield name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield from (f"{name} {option}" for option in (*parameter.opts, *parameter.secondary_opts))
            else:
                yield f"{name} {parameter.human_readable_name}"
    variables = (CHECKOUT / "docs" / "environment.md").read_text(encoding="utf-8")
    yield from set(re.findall(r"`(SWEEPS_[A-Z_]+)`", variables))


def rest() -> Iterator[str]:
    document = routes.openapi_document()
    for method, path, route in routes.all_routes(document):
        yield f"{method.upper()} {path}"
        yield from (f"{method.upper()} {path} {each['name']}" for each in route.get("parameters", []))
    for name, schema in document["components"]["schemas"].items():
        yield from (f"{name}.{field}" for field in schema.get("properties", {}))


def python() -> Iterator[str]:
    for package in python_functions.PACKAGES:
        for found in python_functions.public_objects(package):
            yield f"{package}.{found.name}"
            if isinstance(found, griffe.Function | griffe.Class):
                yield from (f"{package}.{found.name}({each.name})" for each in found.parameters if each.name != "self")
            if found.is_class:
                kept = listed("python")  # what is inherited was promised where the class had it itself
                described = (
                    each
                    for each in found.all_members.values()
                    if each.is_public and each.docstring
                    if each.name in found.members or f"{package}.{found.name}.{each.name}" in kept
                )
                yield from (f"{package}.{found.name}.{each.name}" for each in described if each.name != "__init__")


def printed_json(uri: str, first: str, second: str) -> Iterator[str]:
    """Keys of what verbs print with ``--json``, about two small sweeps of a store."""
    printed = {
        "run, resume, show": ("show", first),
        "show --trial": ("show", first, "--trial", "0"),
        "list": ("list",),
        "best": ("best", first),
        "compare": ("compare", first, second),
    }
    for title, arguments in printed.items():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run_command([*arguments, "--json", "--tracking-uri", uri])
        yield from (f"{title}: {path}" for path in _paths(json.loads(out.getvalue()), ""))


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _paths(each, f"{path}[]")
    elif isinstance(value, dict) and path.rpartition(".")[2] not in CHOSEN_BY_USERS:
        for key, inner in value.items():
            below = f"{path}.{key}".lstrip(".")
            yield below
            yield from _paths(inner, below)


def mlflow() -> Iterator[str]:
    """Tags, artifacts and metrics that a sweep records."""
    for name, value in vars(constants).items():
        if (
            name.startswith("TAG_")
            or name.endswith(("_ARTIFACT", "_ARTIFACTS", "_METRIC"))
            or name == "PARAMETER_PREFIX"
        ):
            yield value
    yield from SYSTEM_METRICS
    for key in config_keys.all_keys(config_keys.DOCUMENTS[0]):
        if key.path == "task.metrics" and key.field.default_factory is not None:
            yield from key.field.default_factory()  # type: ignore[call-arg]


def in_words(name: str) -> str:
    """Return a listed name as documents write it.

    >>> in_words("sweep: search.sampler.startup_trials (tpe)")
    'search.sampler.startup_trials'
    """
    return (name.partition(": ")[2] or name).partition(" (")[0]


def unnamed(gone: Iterable[str]) -> list[str]:
    """Names that are gone and that the notes for an upgrade do not have."""
    notes = (CHECKOUT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    return sorted(name for name in gone if f"`{in_words(name)}`" not in notes)


SURFACES: dict[str, Callable[[], Iterator[str]]] = {
    "config": config,
    "command_line": command_line,
    "rest": rest,
    "python": python,
    "mlflow": mlflow,
}


def listed(surface: str) -> set[str]:
    """Names that a release has had."""
    return set((PROMISED / f"{surface}.txt").read_text(encoding="utf-8").splitlines())


def add(surface: str, names: Iterable[str]) -> None:
    """Add new names to a listing."""
    text = "\n".join(sorted(listed(surface) | set(names))) + "\n"
    (PROMISED / f"{surface}.txt").write_text(text, encoding="utf-8")


def main() -> None:
    for surface, names in SURFACES.items():
        add(surface, names())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["SWEEPS_CACHE"] = os.environ[SHARED] = folder
        uri = f"sqlite:///{folder}/mlflow.db"
        for name in ("first", "second"):
            record_small_sweep(uri, name)
        add("json", printed_json(uri, "first", "second"))


if __name__ == "__main__":
    main()
