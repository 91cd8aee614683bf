"""The reference: everything that a user can set, type, ask or call is described, and the examples are valid."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from documents import words
from pydantic import TypeAdapter, ValidationError

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))  # its generators are scripts beside the pages

import build_site
from reference import config_groups, config_keys, python_functions, routes, verbs
from reference.conf_values import written_examples
from reference.value_type import sections

from sweeps.compose.overrides import parse_values
from sweeps.errors import ConfigError

KEYS = [(document, key) for document in config_keys.DOCUMENTS for key in config_keys.all_keys(document)]
ONCE_FORGOTTEN = (
    *("scaling.hang_timeout_s", "search.default_first", "train.warmup_fraction", "train.log_every"),
    *("search.max_concurrent", "data.eval_fraction", "cluster.num_cpus", "search.scheduler.grace", "scaling.use_gpu"),
)


def test_every_config_key_has_a_description() -> None:
    assert len(KEYS) > 300
    assert [f"{document.name}: {key.path} ({key.variant})" for document, key in KEYS if not key.description] == []


def test_every_section_has_a_description() -> None:
    found = [section for document in config_keys.DOCUMENTS for section in config_keys.all_sections(document)]
    assert len(found) > 50
    assert [f"{section.path} ({section.variant})" for section in found if not section.description] == []


def test_every_config_key_is_on_a_page() -> None:
    text = "\n".join(config_keys.pages().values())
    assert [key.path for _, key in KEYS if f"### `{key.path}`" not in text] == []
    assert [path for path in ONCE_FORGOTTEN if f"### `{path}`" not in text] == []


EXAMPLES = [(document.name, key) for document, key in KEYS if key.example is not None]


def problem(document: str, key: config_keys.Key) -> str:
    """Reason why the example of a key is refused; empty if it is not."""
    metadata = key.field.metadata
    annotation = Annotated[key.field.annotation, *metadata] if metadata else key.field.annotation
    value = key.example
    try:
        if document != "schedule" and "[N]" not in key.path:  # as the command line reads it
            (value,) = parse_values(words(config_keys.override(key))).values()
        TypeAdapter(annotation).validate_python(value)
    except (ConfigError, ValidationError) as error:
        return f"{key.path} ({key.variant}): {error}"
    return ""


def test_the_examples_of_keys_are_valid_values() -> None:
    assert list(filter(None, (problem(name, key) for name, key in EXAMPLES))) == []


def test_every_key_that_the_written_examples_name_exists() -> None:
    known = {document.name: {key.path for key in config_keys.all_keys(document)} for document in config_keys.DOCUMENTS}
    assert [
        path
        for name, found in written_examples().items()
        for path in found
        if path.partition(" (")[0] not in known[name]
    ] == []


def test_most_keys_have_an_example() -> None:
    without = [key.path for _, key in KEYS if key.example is None and not sections(key.field.annotation)]
    assert len(without) < len(KEYS) / 10, without


def test_every_shipped_config_and_group_has_a_comment_on_the_page() -> None:
    pages = config_groups.pages()
    rows = [line for page in pages.values() for line in page.splitlines() if line.startswith("| [`")]
    assert len(rows) > 60
    assert [row for row in rows if row.count("|") < 3 or not row.split("|")[2].strip()] == []


def test_every_verb_and_option_has_a_description() -> None:
    found = dict(verbs.all_verbs())
    assert {"run", "token create", "schedule list"} <= set(found)
    assert [name for name, command in found.items() if not command.help] == []
    options = [
        (name, option)
        for name, command in found.items()
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert [f"{name} {option.opts[0]}" for name, option in options if not option.help] == []
    text = verbs.pages()["reference/verbs.md"]
    assert [f"{name} {option.opts[0]}" for name, option in options if option.opts[0] not in text] == []


def undescribed(document: dict[str, Any]) -> Iterator[str]:
    for method, path, route in routes.all_routes(document):
        if not route.get("description"):
            yield f"{method} {path}"
        for parameter in route.get("parameters", []):
            if not parameter.get("description"):
                yield f"{method} {path}: {parameter['name']}"
    for name, schema in document["components"]["schemas"].items():
        if not schema.get("description"):
            yield name
        yield from (
            f"{name}.{field}" for field, about in schema.get("properties", {}).items() if not about.get("description")
        )


def test_every_route_and_each_of_its_parameters_and_fields_has_a_description() -> None:
    document = routes.openapi_document()
    assert len(list(routes.all_routes(document))) > 30
    assert list(undescribed(document)) == []


@pytest.mark.parametrize("package", python_functions.PACKAGES)
def test_every_public_function_and_class_has_a_description(package: str) -> None:
    found = list(python_functions.public_objects(package))
    assert len(found) > 10
    assert [each.name for each in found if not each.docstring] == []
    attributes = [member for each in found if each.is_class for member in each.members.values() if member.is_attribute]
    assert [each.path for each in attributes if each.is_public and not each.docstring] == []
    page = python_functions.pages()[f"reference/python/{package.replace('.', '_')}.md"]
    assert [each.name for each in found if f"### `{each.name}`" not in page] == []


def test_every_page_has_a_place_in_the_navigation_and_links_lead_to_pages_of_the_site() -> None:
    written, generated = build_site.hand_written(), build_site.generated()
    build_site._configuration({*written, *generated})
    linked = {target for text in written.values() for target in re.findall(r"\]\((?!https?:)([^)#\s]+\.md)", text)}
    assert len(linked) > 40
    assert linked - written.keys() - generated.keys() == set()
