"""What a request may say before any of it is composed: Hydra's grammar can do more than set values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Glob, Override

from sweeps.compose.overrides import parse_overrides
from sweeps.config.access import Access
from sweeps.errors import ConfigError

CONF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
"""A config by its name; a file's path is none."""
KEY = re.compile(r"[A-Za-z_][\w-]*([./][\w-]+)*", re.ASCII)
"""A dotted path or a group; `@` would put a group where nobody looks for it."""
OPENING, CLOSING = "[{(", "]})"


def check_conf(conf: str) -> None:
    """
    Raises:
        ConfigError: It names a file.
    """
    if not CONF.fullmatch(conf) or conf.endswith((".yaml", ".yml")):
        raise ConfigError(f"conf={conf[:100]}: give the name of a config that the service has, and no file")


def check_overrides(tokens: Sequence[str], access: Access) -> None:
    """
    Raises:
        ConfigError: There are too many or too long ones, or one does more than set a value: it reads the environment or
            another value, configures Hydra itself, or names a config outside of the service's own.
    """
    if len(tokens) > access.max_overrides:
        raise ConfigError(
            f"there are {len(tokens)} overrides; the service takes at most {access.max_overrides} in a request"
        )
    for token in tokens:
        _check_text(token, access)
    for override in parse_overrides(tokens):
        key = override.key_or_group
        shown = (override.input_line or key)[:100]
        if override.package is not None or not KEY.fullmatch(key):
            raise ConfigError(f"{shown}: through the service a key is a dotted path or a group, and nothing more")
        if key.partition(".")[0].partition("/")[0] in ("hydra", "defaults"):
            raise ConfigError(f"{shown}: Hydra itself cannot be configured through the service; leave it out")
        for text in _texts(_plain(override)):
            _check_value(shown, text)


def _check_text(token: str, access: Access) -> None:
    """What may be handed to the parser, which answers some texts by an error of Python's."""
    if len(token) > access.max_value_length:
        raise ConfigError(
            f"{token[:50]}...: is longer than the {access.max_value_length} characters that the service takes"
        )
    depth = deepest = 0
    for character in token:
        depth += (character in OPENING) - (character in CLOSING)
        deepest = max(deepest, depth)
    if deepest > access.max_depth:
        raise ConfigError(f"{token[:50]}...: has more than {access.max_depth} brackets within brackets; simplify it")
    if re.search(r"(?<!\d)\d{1000}", token):
        raise ConfigError(f"{token[:50]}...: has a number of more than a thousand digits; give a shorter one")
    if not token.isprintable():
        raise ConfigError(f"{token[:50]!r}: has characters that cannot be printed; leave them out")


def _check_value(shown: str, text: str) -> None:
    if "${" in text:
        raise ConfigError(
            f"{shown}: interpolations cannot be given through the service, since they read its environment; give the "
            "value itself"
        )
    if ".." in text.replace("\\", "/").split("/"):
        raise ConfigError(f"{shown}: '..' leads out of the service's folders; give a path without it")
    if "\0" in text:
        raise ConfigError(f"{shown!r}: has a null byte; leave it out")


def _plain(override: Override) -> Any:
    """The value, and every one of a range; the ends of ranges of numbers have nothing to say."""
    value: Any = override.value()  # Hydra's annotation leaves Glob out
    if isinstance(value, ChoiceSweep):
        return value.list
    if isinstance(value, Glob):
        return [*value.include, *value.exclude]
    return value


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, keys included; Hydra keeps quoted ones as objects."""
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
