"""Passwords that may stand in URIs, and are shown to nobody."""

from __future__ import annotations

import re


def shown(uri: str) -> str:
    """The URI without its password."""
    return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", uri)


def holds_password(uri: str) -> bool:
    return shown(uri) != uri


def without_credentials(address: str) -> str:
    """An address that may stand in a link: with neither user nor password."""
    return re.sub(r"://[^/@]*@", "://", address)
