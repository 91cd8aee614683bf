"""Messages for mistakes in a config, from pydantic's errors: each names the full key, the value and the fix."""

from __future__ import annotations

import json
import re
import shlex
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from sweeps.compose.dotted import nested
from sweeps.compose.hydra_settings import CONFIG_OF_PROGRAM
from sweeps.compose.other_tools import hint_for_key, hint_for_override, hint_for_type
from sweeps.config import SWEEP_SECTIONS, SweepConfig
from sweeps.config.descriptions import members
from sweeps.config.sweep_name import NAME_LETTERS, NAME_PATTERN
from sweeps.errors import ConfigError, raise_mistakes
from sweeps.folders.conf_folders import ConfFolders
from sweeps.texts.suggestions import closest_names, did_you_mean
from sweeps.texts.wording import value_text

Schema = TypeVar("Schema")

UNION = "tagged-union["
"""Beginning of pydantic's name for a union of sections within another union."""
SHOULD_BE = "Input should be "
"""Beginning of pydantic's messages."""
CONTAINER_FORMS = ("list_type", "dict_type", "dataclass_type", "model_attributes_type")
"""Error types of pydantic for values that should be a list or a section."""
OTHER_NAMES = {
    **dict.fromkeys(
        ("objective", "objectives", "metrics"),
        "search.metric? For several, write 'search.metric=[A,B]' 'search.mode=[min,max]'",
    ),
    **dict.fromkeys(("direction", "directions", "goal"), "search.mode? It is min or max"),
    **dict.fromkeys(("timeout", "time_budget_s"), "search.stop.wall_hours? It is in hours"),
}
"""Our key for other tools' names of keys below ``search``."""
ITEMS = re.compile(r"(?:List|Dictionary) should (have at (?:least|most) \d+ items?) after validation, not \d+")
"""Message of pydantic on the length of a list."""


def read_config(container: Mapping[str, Any]) -> SweepConfig:
    """Convert a composed config to the typed one.

    Raises:
        ConfigError: The message has every mistake, one per line.
    """
    return read_as(SweepConfig, container)


def read_as(schema: type[Schema], container: Mapping[str, Any]) -> Schema:
    """Return a typed dataclass, such as a schedule or the service's config, from plain values.

    Raises:
        ConfigError: The message has every mistake, one per line.
    """
    details = _booleans_as_numbers(schema, container)
    try:
        read: Schema = TypeAdapter(schema).validate_python(container)
    except ValidationError as error:
        keys = [_locate(each, container)[0] for each in details]
        others = error.errors(include_url=False)
        details += [each for each in others if _locate(each, container)[0] not in keys]
    else:
        if not details:
            raise_mistakes([*_keys_without_quotes(container)])
            return read
    raise ConfigError("\n".join(dict.fromkeys(_lines(schema, details, container))))


class _BooleanText(str):
    """Text of a boolean: pydantic accepts it as a boolean but not as a number, unlike ``True``."""

    __slots__ = ()


def _booleans_as_numbers(schema: type, container: Any) -> list[Any]:
    """Return an error for each boolean given instead of a number, since pydantic itself accepts true as 1."""
    try:
        TypeAdapter(schema).validate_python(_with_boolean_texts(container))
    except ValidationError as error:
        return [
            {
                **detail,
                "input": detail["input"] == "true",
                "msg": f"{detail['msg'].partition(', unable')[0]}, not a boolean; write the number itself",
            }
            for detail in error.errors(include_url=False)
            if detail["type"] in ("int_parsing", "float_parsing") and isinstance(detail["input"], _BooleanText)
        ]
    return []


def _with_boolean_texts(value: Any) -> Any:
    match value:
        case bool():
            return _BooleanText(value_text(value))
        case dict():
            return {key: _with_boolean_texts(each) for key, each in value.items()}
        case list():
            return [_with_boolean_texts(each) for each in value]
    return value


def _keys_without_quotes(value: Any, path: str = "") -> Iterator[str]:
    """Yield a mistake for each key that is not a string, as in ``{0: 1.5}``: the record and a resumed sweep would have
    another key, since JSON has only strings as keys."""
    if isinstance(value, list):
        value = dict(zip(map(str, range(len(value))), value, strict=True))
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(key, str):
                name = value_text(key)
                yield f"{path}{name}: a key must be text; write it in quotes, as in '{name}': VALUE"
            yield from _keys_without_quotes(each, f"{path}{key}.")


def _lines(schema: type, details: Sequence[Any], container: Any) -> Iterator[str]:
    """Describe each mistake once: pydantic reports one for each accepted form of a value."""
    of_keys: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for detail in details:
        of_keys.setdefault(tuple(_locate(detail, container)[0]), []).append(detail)
    for key, alternatives in of_keys.items():
        precise = [each for each in alternatives if not _is_of_form(each)]
        if precise:
            yield from (describe(schema, each, container) for each in precise)
        elif not any(other[: len(key)] == key for other in of_keys if other != key):  # else those below it say more
            yield describe(schema, _merged(alternatives), container)


def _is_of_form(detail: Mapping[str, Any]) -> bool:
    """Whether a mistake is about the form of a value, such as text instead of a number; another type of a union may
    accept the value."""
    return str(detail["type"]).endswith(("_type", "_parsing", "literal_error"))


def _merged(alternatives: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Combine the mistakes that a union reports, one for each accepted form, into one. For a plain value, only the
    plain forms count."""
    of_plain = [each for each in alternatives if each["type"] not in CONTAINER_FORMS]
    first, *others = of_plain or alternatives
    if not others:
        return first
    wanted = [each["msg"].removeprefix(SHOULD_BE).partition(", unable")[0] for each in (first, *others)]
    words = " ".join(str(each.get("ctx", {}).get("expected", "")) for each in (first, *others))
    return {**first, "type": "literal_error", "msg": f"{SHOULD_BE}{' or '.join(wanted)}", "ctx": {"expected": words}}


def knows(path: str) -> bool:
    """Whether the schema has a dotted path, for any kind of model, data and other sections."""
    return _knows(SweepConfig, path.split("."))


def _knows(annotation: Any, parts: Sequence[str]) -> bool:
    if not parts:
        return True
    fields = getattr(annotation, "__pydantic_fields__", None)
    if fields is not None:
        return any(
            _knows(field.annotation, parts[1:]) for name, field in fields.items() if parts[0] in (name, field.alias)
        )
    if typing.get_origin(annotation) is dict:
        return True  # a mapping with arbitrary names
    return any(_knows(member, parts) for member in typing.get_args(annotation))


def describe(schema: type, detail: Mapping[str, Any], container: Any) -> str:
    """Describe one mistake in one line: ``train.lr='abc': must be a valid number``."""
    path, parent = _locate(detail, container)
    key, value = ".".join(path), detail["input"]
    match detail["type"]:
        case "unexpected_keyword_argument":
            hint = _of_other_kinds(schema, path, parent) or _nearest_key(path, _fields(schema, parent))
            return f"{key}={_short(value)}: there is no such key{hint}"
        case "missing" | "missing_keyword_only_argument":
            group = _group(schema, key)
            fix = f"choose an option, as `{group}: OPTION` in the config's defaults" if group else "give it a value"
            return f"{key}: is required and has no default; {fix}{f'; {CONFIG_OF_PROGRAM}' if key == 'task' else ''}"
        case "union_tag_invalid" | "union_tag_not_found":
            return _wrong_tag(path, detail["ctx"])
        case "value_error":
            prefix = f"{key}: " if key else ""
            return f"{prefix}{detail['ctx']['error']}"
        case "dataclass_type" | "model_attributes_type" | "dict_type":
            return _not_a_mapping(key, value, [*_by_kind(schema, detail["loc"])], _group(schema, key))
    message = plain_words(detail["msg"])
    words = str(detail.get("ctx", {}).get("expected", "")) if detail["type"] == "literal_error" else ""
    search = _searched(detail, key) if schema is SweepConfig and path[0] not in SWEEP_SECTIONS else ""
    hints = f"{_meant(value, words)}{search}{_as_list(detail, key)}{_as_text(detail, key)}"
    return f"{key}={_short(value)}: {message}{hints}"


def plain_words(message: str) -> str:
    """Rewrite a message of pydantic as a requirement: ``must be a valid number``."""
    message = message.replace(f"match pattern '{NAME_PATTERN}'", f"have only {NAME_LETTERS}")
    return ITEMS.sub(r"must \1", message).replace("Input should be", "must be").replace("String should", "must")


def _wrong_tag(path: Sequence[str], context: Mapping[str, Any]) -> str:
    """Describe a missing or unknown value of the key that selects a section's type (``kind``, ``type``)."""
    key, tag, is_space = ".".join(path), context["discriminator"].strip("'"), path[0] == "space"
    if "tag" not in context:
        example = ", as in {type: float, low: LOW, high: HIGH}" if is_space else ""
        return f"{key}: needs the key {tag!r}, which selects its type{example}"
    given, known = context["tag"], str(context["expected_tags"])
    hint = hint_for_type(str(given)) if is_space else None
    return f"{key}.{tag}={given!r}: must be one of {known}{f'; {hint}' if hint else _meant(given, known)}"


def _searched(detail: Mapping[str, Any], key: str) -> str:
    """Suggest a search over the values of a list, or in a distribution, that was given instead of one value."""
    value = detail["input"]
    if (hint := _distribution(key, value)) is not None:
        return f"; to search it, {hint}"
    if isinstance(value, Mapping) and {"low", "high", "min", "max", "choices", "values"} & {*value}:
        kind = "int" if detail["type"].startswith("int") else "float"
        is_choice = {"choices", "values"} & {*value}
        form = "type: categorical, choices: [A, B]" if is_choice else f"type: {kind}, low: LOW, high: HIGH"
        return f"; to search it, move it: `space: {{{key}: {{{form}}}}}`"
    if not isinstance(value, list) or not value or isinstance(value[0], list | dict):
        return ""
    choices = ", ".join(map(value_text, value[:5]))
    given = f"'{key}=choice({choices}{', ...' if value[5:] else ''})'"
    return f"; to search these, instead write {given} on the command line"


def _as_list(detail: Mapping[str, Any], key: str) -> str:
    """Suggest a list of the one value that was given."""
    value = detail["input"]
    if detail["type"] != "list_type" or not isinstance(value, str | int | float):
        return ""
    item = value_text(value) if re.fullmatch(r"[\w./-]+", str(value)) else json.dumps(value)
    return f"; write {shlex.quote(f'{key}=[{item}]')}"


def _as_text(detail: Mapping[str, Any], key: str) -> str:
    """Explain how to write a string that looks like a number or a boolean, such as the name of a folder."""
    value = detail["input"]
    if key.endswith(".[key]") or (not isinstance(value, str) and str(value) == key.rpartition(".")[2]):
        return f"; it is the name of a key: write it in quotes, as in '{value}': VALUE"
    if detail["type"] != "string_type" or not isinstance(value, bool | int | float):
        return ""
    text = json.dumps(str(value).lower() if isinstance(value, bool) else str(value))
    return f"; for the text write {shlex.quote(f'{key}={text}')}, or {key.rpartition('.')[2]}: {text} in YAML"


def _distribution(path: str, value: Any) -> str | None:
    """Suggest how to write the text of a distribution, in our grammar or in the notation of another tool. The type of
    its values is known only where it is written on the command line."""
    hint = hint_for_override(f"{path}={value.replace('interval(', 'uniform(')}") if isinstance(value, str) else None
    return None if hint is None else f"remove it here, and on the command line {hint}"


def _group(schema: type, key: str) -> str | None:
    """Return the name of the config group at a key, such as ``search/sampler``; None if there is none."""
    group = key.replace(".", "/")
    return group if schema is SweepConfig and ConfFolders([]).is_group(group) else None


def _not_a_mapping(key: str, value: Any, kinds: Sequence[str], group: str | None) -> str:
    """Describe a plain value that was given instead of a section, such as its kind, an option of its group, or the text
    of a distribution."""
    hint = _distribution(key.removeprefix("space."), value) if key.startswith("space.") else None
    if group is not None and value in ConfFolders([]).options(group):  # the keys of another option would remain
        hint = f"remove it here, and write {group}={value} on the command line, or choose it in the file's defaults"
    elif value in kinds:
        hint = f"write {{kind: {value}}}"
    return f"{key}={_short(value)}: must have keys of its own, as in {section_like(key)}{f'; {hint}' if hint else ''}"


def section_like(key: str) -> str:
    """Return an example of a section at a key, for messages."""
    if not key.startswith("space."):
        return "{key: value}"
    below = {"prior": "{value: 0.01, confidence: 0.5}", "when": "{PATH: VALUE}"}
    return below.get(key.rpartition(".")[2], "{type: float, low: 0, high: 1}")


def _nearest_key(path: Sequence[str], known: Sequence[str]) -> str:
    """Suggest similar keys, as ``"; did you mean train.lr?"``; only the last part is compared."""
    owner, name = path[:-1], path[-1]
    if name == "space" and owner:
        return (
            "; a space belongs to the whole sweep: begin the option's file with `# @package _global_`, and put its "
            "other keys below their section"
        )
    if (hint := _in_other_notation(path)) is not None:
        return hint
    if list(path) == ["search", name] and name in OTHER_NAMES:
        return f"; did you mean {OTHER_NAMES[name]}"
    other = hint_for_key(name) if path[0] == "space" else None
    close = [other] if other is not None and other in known else closest_names(name, known)
    if not close and not owner:  # only `lr` of `train.lr` was typed
        within = [f"{section}.{name}" for section in known if name in _fields(SweepConfig, [section])]
        own = f"; a value of your own belongs below vars, as in vars.{name}" if "vars" in known else ""
        return f"; did you mean {', '.join(within)}?" if within else did_you_mean(name, known, listed=0) or own
    if not close:
        return did_you_mean(name, [".".join([*owner, each]) for each in known])
    return f"; did you mean {', '.join('.'.join([*owner, each]) for each in close)}?"


def _in_other_notation(path: Sequence[str]) -> str | None:
    """Suggest how to write a key with dots or slashes; None if the schema has none of this name."""
    name, dotted = path[-1], ".".join(path).replace("/", ".")
    if path[0] == "space" or not knows(dotted):
        return None
    if "/" in name:
        group = _group(SweepConfig, dotted)
        return f"; write {dotted}" if group is None else f"; write `- override {group}: OPTION` in the file's defaults"
    if "." not in name:
        return None
    return f"; write it nested, as in `{nested(dotted)}`"


def _of_other_kinds(schema: type, path: Sequence[str], parent: Sequence[str]) -> str:
    """Explain that a key belongs to sections of another kind; empty if it belongs to none."""
    of_kind = _by_kind(schema, parent[:-1])
    kinds = [kind for kind, each in of_kind.items() if path[-1] in each]
    if not kinds or not parent or parent[-1] not in of_kind:  # the last part may be the name of a section
        return ""
    is_group = not any(part.isdigit() for part in path)
    fix = f", or choose a kind with its own keys: {'/'.join(path[:-1])}=OPTION" if is_group else ""
    return f" in kind={parent[-1]}, only in kind={' or '.join(kinds)}; remove it{fix}"


def _meant(value: Any, words: str) -> str:
    """Suggest the words that pydantic's message quotes, as ``"; did you mean max?"``."""
    close = closest_names(value, re.findall(r"'([^']*)'", words)) if isinstance(value, str) else []
    return f"; did you mean {', '.join(close)}?" if close else ""


def _has(container: Any, part: Any) -> bool:
    if isinstance(container, list):
        return isinstance(part, int) and part < len(container)
    return isinstance(container, Mapping) and part in container


def _is_class(part: str) -> bool:
    """Whether a part of a location names a section's class or a union of them, instead of a key."""
    return part.startswith(UNION) or part[:1].isupper()


def _locate(detail: Mapping[str, Any], container: Any) -> tuple[list[str], list[str]]:
    """Return the dotted path of an error, and pydantic's location of the mapping around it.

    Pydantic adds the tag of a discriminated union to the location (``model, conv_net, channels``). A part that is not a
    key of the data at that place is a tag, and so is the first one after a section of that kind, which may have a key
    of this name (``task, command, command``).
    """
    path: list[str] = []
    location, tag_at = detail["loc"], -1
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if last and _is_of_form(detail) and container is detail["input"]:
            continue  # the form that this value does not have
        is_kind = isinstance(container, Mapping) and part in (container.get("kind"), container.get("type"))
        if is_kind and index != tag_at + 1:
            tag_at = index
            continue
        if _has(container, part):
            container = container[part]
        elif is_kind or not last or not isinstance(container, Mapping) or _is_class(str(part)):
            continue
        path.append(str(part))
    return path, [str(part) for part in location[:-1]]


def _fields(schema: type, location: Sequence[str]) -> list[str]:
    """Return the field names of the schema at one of pydantic's locations."""
    return [field.alias or name for each in _sections(schema, location) for name, field in each.items()]


def _by_kind(schema: type, location: Sequence[Any]) -> dict[str, Mapping[str, FieldInfo]]:
    """Return the fields of each kind of the section at one of pydantic's locations; empty if it has no kinds."""
    found = _sections(schema, location)
    return {kind: each for each in found if "kind" in each for kind in typing.get_args(each["kind"].annotation)}


def _sections(schema: type, location: Sequence[Any]) -> list[Mapping[str, FieldInfo]]:
    """Return the fields of each section that may be at one of pydantic's locations."""
    annotation: Any = schema
    for part in location:
        annotation = _step(annotation, str(part))
    return [getattr(member, "__pydantic_fields__", {}) for member in members(annotation)]


def _step(annotation: Any, part: str) -> Any:
    """Return the type of the next part of a location: of a field, of a union member, or of the values of a mapping."""
    fields = getattr(annotation, "__pydantic_fields__", None)
    if fields is not None:
        for name, field in fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    if part.startswith(UNION):
        return annotation
    if typing.get_origin(annotation) in (dict, list):  # a mapping with arbitrary names, such as the space
        value = typing.get_args(annotation)[-1]
        return typing.get_args(value)[0] if typing.get_origin(value) is typing.Annotated else value
    possible = list(members(annotation))
    for member in possible:
        tags = getattr(member, "__pydantic_fields__", {})
        for discriminator in ("kind", "type"):
            if discriminator in tags and part in typing.get_args(tags[discriminator].annotation):
                return member
    dataclasses = [member for member in possible if hasattr(member, "__pydantic_fields__")]
    return _step(dataclasses[0], part) if len(dataclasses) == 1 else None  # an optional section: X | None


def _short(value: Any) -> str:
    text = value_text(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
