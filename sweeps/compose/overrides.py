"""Overrides in Hydra's grammar: parsing, and writing them from Python values."""

from __future__ import annotations

import json
import numbers
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, QuotedString, Sweep
from hydra.errors import HydraException

from sweeps.compat.hydra import override_parser
from sweeps.compose.composition import first_line, literal
from sweeps.compose.dotted import find, leaves
from sweeps.compose.other_tools import hint_for_override
from sweeps.errors import ConfigError, raise_mistakes
from sweeps.folders.conf_folders import ConfFolders

Overrides = Sequence[str] | Mapping[str, Any]
"""Overrides as Python functions accept them: ``["train.lr=0.01"]`` or ``{"train.lr": 0.01}``."""

_OPTION = re.compile(r"\A(\+{0,2}\w+(?:\.\w+)*)\.((?<=options\.)\+*[\w./@-]+=|-[\w-]+)=(.*)", re.DOTALL)
"""Override of an option such as ``task.options.--lr`` or ``task.options.lr=``: a key that Hydra's grammar allows only
in mappings."""
FUNCTIONS = "choice|interval|range|glob|tag|int|float|sort|shuffle"
"""Functions of Hydra's grammar whose value is a range."""
_RANGE = re.compile(rf"({FUNCTIONS})\(.*\)", re.DOTALL)
MIXED = "choices are values, and one of these is a range; give one range alone, or values alone"
_NO_KEY = re.compile(r"[^\w.\-/@+~]|(?<![\w\-])\d+[A-Za-z_\-]", re.ASCII)
_PLAIN = re.compile(r"""[\w/\-\\+.$%*@?|: ]+|"[^"]*"|'[^']*'""", re.ASCII)
"""Text that Hydra reads without quotes, or with quotes of its own."""


def parse_overrides(tokens: Sequence[str]) -> list[Override]:
    """Parse overrides.

    Raises:
        ConfigError: Some tokens are not overrides; the message has a line for each.
    """
    parser = override_parser()
    parsed: list[Override] = []
    mistakes: list[str] = []
    for token in tokens:
        try:
            parsed.append(_parse(parser, token, before=parsed[-1:]))
        except ConfigError as error:
            mistakes.append(str(error))
    raise_mistakes(mistakes)
    return parsed


def _parse(parser: OverridesParser, token: str, before: Sequence[Override]) -> Override:
    try:
        override = parser.parse_override(_OPTION.sub(_as_mapping, token))
    except HydraException as error:
        raise ConfigError(_explained(token, first_line(error), before)) from None
    except AttributeError:
        if not sys.flags.optimize:
            raise
        raise ConfigError(
            f"{token!r}: Hydra cannot read functions and mappings in overrides under python -O or PYTHONOPTIMIZE, "
            "which leave its assertions out; unset it, or write the value into a config"
        ) from None
    if not override.key_or_group:
        raise ConfigError(f"{token!r} is not an override: it has no key; write key=value")
    if override.is_sweep_override():
        _check_choices(override)
    elif (path := _path_of_range(override.value(), override.key_or_group)) is not None:
        raise ConfigError(f"{token!r}: has a range inside of another value; {_search_of(path)}")
    return override


def _path_of_range(value: Any, path: str) -> str | None:
    """Return the path of a range inside of a value; of one in a list, the path of the list."""
    if isinstance(value, Sweep):
        return path
    if isinstance(value, list):
        return path if any(_path_of_range(each, path) for each in value) else None
    if not isinstance(value, Mapping):
        return None
    return next((found for name, each in value.items() if (found := _path_of_range(each, f"{path}.{name}"))), None)


def _search_of(path: str) -> str:
    """Return the form of a search over one path."""
    if ".-" in path:  # no key of Hydra's grammar
        return f"search it in a YAML file, as in `space: {{{path}: {{type: categorical, choices: [A, B]}}}}`"
    return f"search {path} itself, as in '{path}=choice(A, B)'"


def _as_mapping(option: re.Match[str]) -> str:
    """Return ``task.options={--lr: 0.1}`` for ``task.options.--lr=0.1``."""
    key, name, value = option.groups()
    escaped = name.replace("=", r"\=")
    if re.match(r"(?:\\.|[^\\\[{(,'\"])*,", value):
        value = f"choice({value})"  # as in Hydra's grammar
    return f"{key}={{{escaped}: {value}}}"


def _explained(token: str, reason: str, before: Sequence[Override]) -> str:
    """Explain how to write a token in Hydra's grammar."""
    key, equals, value = token.partition("=")
    reason = reason.rpartition("': ")[2] if reason.startswith("HydraException while") else reason
    what = f"{token!r} is not an override ({reason})"
    if "Sweep is incompatible with" in reason:
        return f"{token!r}: {MIXED}"
    if (fix := _fix_of_key(key, value) if equals else None) or (fix := _fix_of_items(key, value)):
        return f"{what}{fix}"
    if (hint := hint_for_override(token)) is not None:
        has_null = _RANGE.search(token) is not None and "null" in token  # Hydra's grammar allows none there
        return f"{token!r} {'has a null in a range' if has_null else 'is the notation of another tool'}; {hint}"
    if not equals:
        also = "'train.lr=interval(1e-4, 1e-2)'"
        if before and "=" in (beginning := str(before[0].input_line)):
            also = f"{shlex.quote(f'{beginning} {token}')} for a value with a blank"
        return f"{what}; write key=value, and quote what the shell would take, as in {also}"
    if "/" in key and reason.endswith(("expecting EQUAL", "expecting ID")):
        return f"{what}; write {_without_slash(key, value)}"
    return f"{what}{_fix(key, value, reason)}"


def _fix_of_key(key: str, value: str) -> str | None:
    """Explain how to write a key that Hydra's grammar does not accept; None for any other."""
    named = re.sub(r"\.\.+", ".", key.strip().strip("."))
    if _NO_KEY.search(named):
        return (
            ": each name of a key on the command line has letters of ASCII, digits, '_' and '-', and begins with no "
            "digit; write this one in a YAML file"
        )
    if key == named:
        return None
    without = "blanks around =" if key != key.strip() else "empty names between dots"
    return f"; write it without {without}: {shlex.quote(f'{named}={value.strip()}')}"


def _fix(key: str, value: str, reason: str) -> str:
    """Explain how to write a value that Hydra's grammar does not accept."""
    if value.startswith("="):
        single = f"{key}={value.lstrip('= ')}"
        return f"; write one =: {shlex.quote(single)}"
    if reason.startswith("TypeError while evaluating"):
        return "; the forms are interval(LOW, HIGH), range(LOW, END, STEP), choice(A, B), tag(log, interval(LOW, HIGH))"
    functions = ""
    if reason.startswith("Unknown function"):
        functions = f"; the functions are {FUNCTIONS.replace('|', ', ')}"
    elif value.lstrip()[:1] in ("[", "{") or _RANGE.match(f"{value})"):
        return "; close each bracket, and quote texts with other characters, as in '[\"a#b\"]'"
    written = written_override(key, value)
    if "\\${" not in value:  # an interpolation stays one
        written = written.replace("\\${", "${")
    return f"{functions}; quote a text with such characters: {shlex.quote(written)}"


def _without_slash(key: str, value: str) -> str:
    """Return an override of a value below a group, or below a name with a slash, such as a metric's."""
    sections = key.split(".")
    first = next(index for index, each in enumerate(sections) if "/" in each)
    if first == 0:
        return shlex.quote(f"{key.replace('/', '.')}={value}")
    for name in reversed(sections[first:]):
        value = f"{{{name}: {value}}}"
    return shlex.quote(f"{'.'.join(sections[:first])}={value}")


def _fix_of_items(key: str, value: str) -> str | None:
    """Explain which strings of ``choice(...)`` or a list need quotes; None if none does."""
    found = re.fullmatch(r"\s*(choice\(|\[)(.*)([)\]])\s*", value, re.DOTALL)
    if found is None or re.search(r"[\[{]", found[2]):
        return None
    items = [each.strip() for each in found[2].split(",")]
    written = [each if _PLAIN.fullmatch(each) else _written(each) for each in items]
    quoted = shlex.quote(f"{key}={found[1]}{', '.join(written)}{found[3]}")
    return f"; quote texts with such characters: {quoted}" if written != items else None


def _check_choices(override: Override) -> None:
    """Reject choices that are ambiguous.

    Raises:
        ConfigError: A choice is a range, or all choices together are a file name with a comma.
    """
    value: Any = override.value()
    if not isinstance(value, ChoiceSweep) or override.input_line is None:
        return
    if any(isinstance(each, Sweep) for each in value.list):
        raise ConfigError(f"{override.input_line}: {MIXED}")
    if not value.simple_form:
        return
    key, _, text = override.input_line.partition("=")
    if _exists(text):
        raise ConfigError(
            f"{override.input_line}: is a search over {len(value.list)} values, and there is a file {text}; write "
            f"{shlex.quote(written_override(key, text))} for the file, or "
            f"{shlex.quote(f'{key}=choice({text})')} for the search"
        )


def _exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # too long for a file name, or of an unknown user
        return False


def parse_values(tokens: Sequence[str]) -> dict[str, Any]:
    """Parse overrides that are plain values; return these by dotted path.

    Raises:
        ConfigError: A token is not ``key=value``.
    """
    values = {}
    for override in parse_overrides(tokens):
        if override.is_delete() or override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: must be key=value, with one value")
        values[override.key_or_group] = override.value()
    return values


def override_tokens(overrides: Overrides) -> list[str]:
    """Return overrides as typed tokens, from a list of tokens or a mapping of values by key.

    Raises:
        ConfigError: The argument is neither, such as one string, whose characters would be taken for overrides.
    """
    if isinstance(overrides, Mapping):
        return [_token(str(key), value) for key, value in overrides.items()]
    is_one = isinstance(overrides, str) or not isinstance(overrides, Iterable)
    if is_one or not all(isinstance(each, str) for each in overrides):
        raise ConfigError(
            f"overrides={overrides!r}: must be a list, as in ['train.lr=0.01'], or a mapping, as in "
            "{'train.lr': 0.01}"
        )
    return [*overrides]


def _token(key: str, value: Any) -> str:
    if key.startswith("~") and value is None:
        return key
    if isinstance(value, str) and _RANGE.fullmatch(value.strip()):
        return f"{key}={value}"
    if isinstance(value, Mapping):
        if [*value] == ["grid_search"]:
            raise ConfigError(f"{key}={value}: is the notation of another tool; write the text 'choice(A, B)'")
        for path in leaves(value) if key != "space" else ():
            if is_range(found := find(value, path)):
                raise ConfigError(
                    f"{key}={value}: has the text of a range inside of a mapping; search {key}.{path} itself, as in "
                    f"{{'{key}.{path}': '{found}'}}"
                )
    try:
        return written_override(key, value)
    except TypeError as error:
        raise ConfigError(
            f"{key}={value!r}: a config cannot hold a {error}; give a number, a text, a list or a mapping, and a range "
            "as a text, such as 'interval(0, 1)' or 'choice(1, 2)'"
        ) from None


def is_range(text: Any) -> bool:
    """Whether a value is the text of a range in Hydra's grammar, such as ``choice(1, 2)``."""
    if not isinstance(text, str) or not _RANGE.fullmatch(text.strip()):
        return False
    try:
        value = override_parser().parse_override(f"key={text}").value()
    except HydraException:
        return False
    return isinstance(value, Sweep) and not isinstance(value, Glob)  # a value may be a pattern of files


def written_override(key: str, value: Any) -> str:
    """Return ``key=value`` in Hydra's grammar, such that it composes to exactly this JSON value.

    Raises:
        TypeError: JSON has no such value; the message is its type.
    """
    return f"{key}={_written(value)}"


def _written(value: Any) -> str:
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's booleans, numbers and arrays
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            # Hydra reads a backslash as an escape only before a quote, and OmegaConf only before an interpolation.
            quoted = re.sub(r'(?<!\\)(\\*+)("|\Z)', lambda found: found[1] * 2 + found[2].replace('"', '\\"'), value)
            return f'"{literal(quoted)}"'
        case Mapping():
            return "{" + ", ".join(f"{_written_key(name)}: {_written(each)}" for name, each in value.items()) + "}"
        case Sequence() if not isinstance(value, bytes | bytearray):
            return "[" + ", ".join(map(_written, value)) + "]"
        case os.PathLike():
            return _written(os.fspath(value))
    if isinstance(value, numbers.Real):
        return repr(int(value) if isinstance(value, numbers.Integral) else float(value))
    raise TypeError(type(value).__name__)


def _written_key(name: Any) -> str:
    """Return a key of a mapping for Hydra's grammar, which has no quotes for keys."""
    return re.sub(r"[\\()\[\]{}:=,]|^\s|\s$", r"\\\g<0>", str(name))


def check_option(override: Override, folders: ConfFolders) -> None:
    """Check that the value of a group can be the name of an option.

    Raises:
        ConfigError: The value of a group cannot be the name of an option; Hydra would fail on it.
    """
    value = override.value()
    if override.is_delete() or isinstance(value, str | dict | QuotedString):
        return
    group = override.key_or_group
    if not folders.is_group(group):
        return
    if not isinstance(value, list) or not value or not all(isinstance(each, str | QuotedString) for each in value):
        has_empty = value is None and "none" in folders.options(group)
        fix = f"write {group}=none, or the name of another" if has_empty else "give the name of one"
        raise ConfigError(
            f"{override.input_line}: {group} is a group; {fix} of its options "
            f"(python -m sweeps conf {group} lists them)"
        )


def hydra_token(override: Override, folders: ConfFolders) -> str:
    """Return an override for Hydra, with ``++``, so that it may set keys that the YAML does not list. The schema
    rejects unknown ones."""
    text: str = override.input_line or ""
    is_group = not isinstance(override.value(), dict) and folders.is_group(override.key_or_group)
    if is_group or override.is_delete():
        return text
    return "++" + text.lstrip("+")


def with_options(arguments: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return Hydra's arguments with the given options of groups in place of their own."""
    options = {group: option for group, option in options.items() if option != "None"}  # has none of its own either
    kept = [argument for argument in arguments if argument.lstrip("+").split("=", 1)[0] not in options]
    return [*kept, *(f"{group}={option}" for group, option in options.items())]
