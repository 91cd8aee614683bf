"""Addresses of channels. An address contains secrets (tokens, passwords), so it is read from an environment variable or
a file, passed on by stdin, and never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from sweeps.errors import ConfigError, raise_mistakes
from sweeps.provenance.redaction import HIDDEN, redacted

if TYPE_CHECKING:  # else each process that sends a message would load all sections of the config
    from sweeps.config.notifications import Channel

WEBHOOK = ("http", "https")
"""Schemes of webhooks that accept Slack's message, ``{"text": ...}``, as Mattermost, Rocket.Chat and others do."""
MIN_SECRET_LENGTH = 4
SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*(?=://)")


def addresses(channels: Sequence[Channel]) -> dict[str, str]:
    """Return the address of each channel, by name; raise ``ConfigError`` with every missing or invalid one, one per
    line."""
    found: dict[str, str] = {}
    mistakes = []
    for index, channel in enumerate(channels):
        key = f"notifications.{index}"
        if channel.name in found:
            mistakes.append(f"{key}.name={channel.name}: two channels have this name; give each its own")
        try:
            found[channel.name] = _read(channel, key)
            check_address(found[channel.name], f"{key}.{_source(channel)}")
        except ConfigError as error:
            mistakes.append(str(error))
    raise_mistakes(mistakes)
    return found


def check_address(address: str, key: str) -> None:
    """Raise ``ConfigError``, whose message does not show the address, if an address is invalid."""
    scheme = SCHEME.match(address)
    if scheme is None:
        raise ConfigError(
            f"{key}: is not an address; give one such as https://HOST/HOOK for a Slack-compatible webhook, or "
            "one for apprise: json://HOST/PATH, slack://A/B/C, mailto://USER:PASSWORD@HOST"
        )
    valid, why = False, "the address has no host, or an invalid port"
    if scheme[0].lower() in WEBHOOK:
        with suppress(ValueError):  # of an address of IPv6, or a port
            valid = bool(urlsplit(address).hostname) and urlsplit(address).port != 0
    else:
        from apprise import Apprise

        valid = Apprise.instantiate(address, suppress_exceptions=True) is not None
        why = f"apprise does not accept this {scheme[0]}:// address; its wiki on GitHub lists the forms"
    if not valid:
        raise ConfigError(f"{key}: {why}")


def without_secrets(text: str, address: str) -> str:
    """Return an error message without the address and its parts."""
    parts = urlsplit(address)
    secret_parts = [
        parts.username,
        parts.password,
        *parts.path.split("/"),
        *(value for _, value in parse_qsl(parts.query)),
    ]
    if parts.scheme not in WEBHOOK:
        secret_parts.append(parts.hostname if parts.scheme not in ("json", "jsons", "mailto", "mailtos") else None)
    secrets = {
        form for each in secret_parts if each for form in (each, unquote(each)) if len(form) >= MIN_SECRET_LENGTH
    }
    for secret in sorted({address, *secrets}, key=len, reverse=True):
        text = re.sub(re.escape(secret), HIDDEN, text, flags=re.IGNORECASE)
    return redacted(text)


def _source(channel: Channel) -> str:
    return f"url_env={channel.url_env}" if channel.url_env is not None else f"url_file={channel.url_file}"


def _read(channel: Channel, key: str) -> str:
    key = f"{key}.{_source(channel)}"
    if channel.url_env is not None:
        address = os.environ.get(channel.url_env, "").strip()
        if not address:
            raise ConfigError(f"{key}: there is no such environment variable, or it is empty; set it to the address")
        return address
    assert channel.url_file is not None
    try:
        address = Path(channel.url_file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ConfigError(f"{key}: cannot be read ({reason}); give a file that holds the address") from None
    if not address:
        raise ConfigError(f"{key}: is empty; write the address into it")
    return address
