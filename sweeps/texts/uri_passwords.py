"""Passwords in URIs, which must not be shown."""

from __future__ import annotations

import re


def redact_uri(uri: str) -> str:
    """Return the URI with its password replaced by ``***``."""
    return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", uri)


def holds_password(uri: str) -> bool:
    return redact_uri(uri) != uri


def without_credentials(address: str) -> str:
    """Return an address without its user and password, for links."""
    return re.sub(r"://[^/@]*@", "://", address)
