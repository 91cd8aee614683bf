"""Reference of every config key: type, default, description and an example, from the typed schema."""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from reference.conf_values import shipped_values, written_examples
from reference.page import code, heading, prose, sentence, slug, table
from reference.value_type import bare, example_value, in_words, members, sections
from sweeps.config import SweepConfig
from sweeps.config.descriptions import field_descriptions
from sweeps.config.schedule import Schedule
from sweeps.config.service import Service

PLAIN_WORD = re.compile(r"[\w./:+@%|-]+")
"""Text that needs no quotes in an override and in YAML."""
CHOOSERS = ("kind", "type")
"""Keys that choose between the variants of a section."""


class Key(NamedTuple):
    """One key of a config."""

    path: str
    """Dotted path, with a word in capitals for a name that users choose."""
    variant: str
    """Variant of the section that has the key; empty if all have it."""
    type: str
    default: str
    description: str
    example: Any
    """A value other than the default; None if there is none to show."""
    field: FieldInfo

    @property
    def anchor(self) -> str:
        """Name of its heading."""
        return slug(f"{self.path} {self.variant}")


class Section(NamedTuple):
    """A section of a config, or one variant of it."""

    path: str
    variant: str
    """Values of ``kind`` or ``type`` that choose it; empty if there is only one."""
    description: str
    keys: list[Key]
    schema: type


class Document(NamedTuple):
    """A kind of YAML file and its schema."""

    name: str
    root: type
    introduction: str


DOCUMENTS = (
    Document(
        "sweep",
        SweepConfig,
        "Keys of a sweep: a file at the top of a config folder, as `conf/digits.yaml`. Any of them can be set on the "
        "command line (`python -m sweeps run conf=digits KEY=VALUE`), and any that has a value can be searched "
        "([search spaces](../../search_space.md)).",
    ),
    Document(
        "schedule",
        Schedule,
        "Keys of a schedule: a file `schedule/NAME.yaml` in a config folder ([schedules](../../schedules.md)).",
    ),
    Document(
        "service",
        Service,
        "Keys of the service: a file `service/NAME.yaml` in a config folder, or on the command line: "
        "`python -m sweeps serve KEY=VALUE` ([the service](../../service.md)).",
    ),
)


def pages() -> dict[str, str]:
    """Return the pages by path: one for each section of a sweep, one for schedules, one for the service, and an
    index."""
    written = {}
    for document in DOCUMENTS:
        by_page: dict[str, list[Section]] = {}
        for section in all_sections(document):
            by_page.setdefault(page_of(document, section.path), []).append(section)
        for page, found in by_page.items():
            written[f"reference/config/{page}.md"] = _page(page, document, found)
    written["reference/config/index.md"] = _index()
    return written


def page_of(document: Document, path: str) -> str:
    """Return the name of the page that describes a section."""
    if document.root is not SweepConfig:
        return document.name
    return path.partition(".")[0] or "sweep"


def all_sections(document: Document) -> Iterator[Section]:
    """Yield the sections of a config, outer ones first."""
    values = {**shipped_values(document.name), **written_examples()[document.name]}
    yield from _walk("", [document.root], values, set())


def all_keys(document: Document) -> Iterator[Key]:
    """Yield every key of a config."""
    for section in all_sections(document):
        yield from section.keys


def _walk(path: str, classes: list[type], values: dict[str, Any], above: set[type]) -> Iterator[Section]:
    inner: dict[str, list[type]] = {}
    for schema in classes:
        variant = _variant(schema) if len(classes) > 1 or path else ""
        keys = []
        for name, field in schema.__pydantic_fields__.items():
            below, suffix = _sections_below(field.annotation)
            key_path = f"{path}.{field.alias or name}".lstrip(".")
            if name in CHOOSERS and variant:
                continue
            for each in below:
                if each not in inner.setdefault(key_path + suffix, []) and each not in above:
                    inner[key_path + suffix].append(each)
            keys.append(_key(key_path, variant, field, field_descriptions(schema).get(name), values))
        yield Section(path, variant, prose(schema.__doc__), keys, schema)
    for below_path, found in inner.items():
        yield from _walk(below_path, found, values, above | set(classes))


def _sections_below(annotation: Any) -> tuple[list[type], str]:
    """Return the dataclasses inside a key's value, and what its path gets: nothing, or a name that users choose."""
    if found := sections(annotation):
        return found, ""
    for member in map(bare, members(annotation)):
        origin, arguments = typing.get_origin(member), typing.get_args(member)
        if origin is list and (found := sections(arguments[0])):
            return found, "[N]"
        if origin is dict and (found := sections(arguments[1])):
            return found, ".NAME"
    return [], ""


def _variant(schema: type) -> str:
    """Return the values of ``kind`` that choose a dataclass; empty if it is not chosen by one."""
    for chooser in CHOOSERS:
        field = schema.__pydantic_fields__.get(chooser)
        if field is not None and typing.get_origin(field.annotation) is typing.Literal and field.is_required():
            return ", ".join(typing.get_args(field.annotation))
    return ""


def _key(path: str, variant: str, field: FieldInfo, description: str | None, values: dict[str, Any]) -> Key:
    default = _default(field)
    below, _ = _sections_below(field.annotation)
    return Key(
        path=path,
        variant=variant,
        type=in_words(field.annotation, field.metadata),
        default=_default_text(field, default),
        description=prose(description) or (sentence(below[0].__doc__) if below else ""),
        example=_example(path, variant, field, default, values),
        field=field,
    )


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not None:
        return field.default_factory()
    return None if field.default is PydanticUndefined else field.default


def _default_text(field: FieldInfo, default: Any) -> str:
    if field.is_required():
        return "required"
    if dataclasses.is_dataclass(default):
        return "the defaults of its keys"
    return code(value_text(default))


def _example(path: str, variant: str, field: FieldInfo, default: Any, values: dict[str, Any]) -> Any:
    if sections(field.annotation):
        return None
    shipped = values.get(f"{path} ({variant})", values.get(path))
    if shipped is not None and shipped != default:
        return shipped
    return example_value(field.annotation, field.metadata, default)


def value_text(value: Any) -> str:
    """Return a value as it is written in an override, which YAML reads as well.

    >>> value_text({"max": 2000, "of": [True, None]})
    '{max: 2000, of: [true, null]}'
    """
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1 else f"{value}".removesuffix(".0") if value.is_integer() else str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {value_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_text, value)) + "]"
    text = str(value)
    return text if PLAIN_WORD.fullmatch(text) else json.dumps(text)


def override(key: Key) -> str:
    """Return the example of a key as one argument of a command line."""
    text = value_text(key.example)
    path = key.path
    return f"{path}={text}" if not set(text) & set(" {}[]$*'\"<>()&;|!?") else f"'{path}={text}'"


def _page(page: str, document: Document, found: list[Section]) -> str:
    title = page if document.root is SweepConfig and page != "sweep" else f"The {page}"
    parts = [f"# Config: {title}\n"]
    if page == document.name:
        parts.append(document.introduction + "\n")
    for section in found:
        parts += _section(document, section)
    return "\n".join(parts)


def _section(document: Document, section: Section) -> Iterator[str]:
    if section.path:
        chosen = f": {code(section.variant)}" if section.variant else ""
        anchor = slug(f"{section.path} {section.variant}") if section.variant else slug(f"section {section.path}")
        yield heading(2, f"{code(section.path)}{chosen}", anchor)
        yield section.description + "\n"
    for key in section.keys:
        yield heading(3, code(key.path), key.anchor)
        yield key.description + "\n"
        rows = [("Type", key.type), ("Default", key.default)]
        if key.example is not None:
            rows.append(("Example", code(_shown(document, key))))
        yield _properties(rows)


def _shown(document: Document, key: Key) -> str:
    if document.name == "schedule" or "[N]" in key.path:
        return f"{key.path.rpartition('.')[2]}: {value_text(key.example)}"
    return override(key)


def _properties(rows: list[tuple[str, str]]) -> str:
    return " · ".join(f"{name}: {text}" for name, text in rows) + "\n{ .properties }\n"


def _index() -> str:
    parts = ["# All config keys\n", "Every key, with a link to its type, default, description and an example.\n"]
    for document in DOCUMENTS:
        rows = [
            (
                f"[{code(key.path)}]({page_of(document, section.path)}.md#{key.anchor})"
                + (f" ({key.variant})" if key.variant else ""),
                sentence(key.description),
            )
            for section in all_sections(document)
            for key in section.keys
        ]
        parts += [heading(2, f"The {document.name}", f"all-{document.name}"), table(("key", "meaning"), rows)]
    return "\n".join(parts)
