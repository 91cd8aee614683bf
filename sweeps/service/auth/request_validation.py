"""Checks of a request's config name and overrides before they are composed, since Hydra's grammar can do more than set
values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override

from sweeps.compose.overrides import parse_overrides
from sweeps.config.access import Access
from sweeps.errors import ConfigError

CONF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""Pattern of a config's name; a path to a file does not match."""
KEY = re.compile(r"[A-Za-z_][\w-]*([./][\w-]+)*", re.ASCII)
"""Pattern of a dotted path or group; `@`, which would move a group elsewhere, does not match."""
OPENING, CLOSING = "[{(", "]})"
OPERATORS = ("schedule", "service")
"""Groups of configs that only the operator's files use: messages about them would reveal names and values."""


def check_conf(conf: str) -> None:
    """Raise ``ConfigError`` if the name of a config is that of a file."""
    if not CONF.fullmatch(conf) or conf.endswith((".yaml", ".yml")):
        raise ConfigError(f"conf={conf[:100]}: give the name of a config of the service, not a file")


def check_overrides(tokens: Sequence[str], access: Access) -> None:
    """Check overrides.

    Raises:
        ConfigError: There are too many or too long ones, or one does more than set a value: it reads the environment or
            another value, configures Hydra itself, or names a config outside of the service's folders.
    """
    if len(tokens) > access.max_overrides:
        raise ConfigError(
            f"there are {len(tokens)} overrides; the service accepts at most {access.max_overrides} in a request"
        )
    for token in tokens:
        _check_text(token, access)
    for override in parse_overrides(tokens):
        key = override.key_or_group
        shown = (override.input_line or key)[:100]
        if override.package is not None or not KEY.fullmatch(key):
            raise ConfigError(f"{shown}: through the service, a key must be a dotted path or a group")
        section = key.partition(".")[0].partition("/")[0]
        if section in ("hydra", "defaults"):
            raise ConfigError(f"{shown}: Hydra itself cannot be configured through the service; leave it out")
        if section in OPERATORS:
            raise ConfigError(f"{shown}: is for the operator's files, not for a sweep; leave it out")
        value = _plain(override)
        for text in _texts(value):
            _check_value(shown, text)
        # Also the overrides of the stages of a search, which are composed as well; these contain no further overrides.
        check_overrides([*_texts(value)] if key.endswith(".overrides") else [*_inner_overrides(value)], access)


def _inner_overrides(value: Any) -> Iterator[str]:
    """Yield the overrides within a value: all strings under the key ``overrides``."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(each) if str(getattr(key, "text", key)) == "overrides" else _inner_overrides(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _inner_overrides(each)


def _check_text(token: str, access: Access) -> None:
    """Refuse a string that would crash the parser of overrides: too long, too deeply nested, or unprintable."""
    if len(token) > access.max_value_length:
        raise ConfigError(
            f"{token[:50]}...: is longer than the {access.max_value_length} characters that the service accepts"
        )
    depth = deepest = 0
    for character in token:
        depth += (character in OPENING) - (character in CLOSING)
        deepest = max(deepest, depth)
    if deepest > access.max_depth:
        raise ConfigError(f"{token[:50]}...: has more than {access.max_depth} levels of brackets; simplify it")
    if re.search(r"(?<!\d)\d{1000}", token):
        raise ConfigError(f"{token[:50]}...: has a number of more than a thousand digits; give a shorter one")
    if not token.isprintable():
        raise ConfigError(f"{token[:50]!r}: has characters that cannot be printed; remove them")


def _check_value(shown: str, text: str) -> None:
    if "${" in text:
        raise ConfigError(
            f"{shown}: interpolations cannot be given through the service, since they read its environment; give the "
            "value itself"
        )
    if ".." in text.replace("\\", "/").split("/"):
        raise ConfigError(f"{shown}: '..' leads out of the service's folders; give a path without it")
    if "\0" in text:
        raise ConfigError(f"{shown!r}: has a null byte; remove it")


def _plain(override: Override) -> Any:
    """Return the value of an override, or all values of a choice or glob; numeric ranges contain no strings."""
    value: Any = override.value()  # Hydra's annotation leaves Glob out
    if isinstance(value, ChoiceSweep):
        return value.list
    if isinstance(value, Glob):
        return [*value.include, *value.exclude]
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield every string in a value, including keys; Hydra represents quoted strings as objects."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    else:
        text = getattr(value, "text", value)
        if isinstance(text, str):
            yield text
