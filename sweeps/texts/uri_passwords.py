"""Passwords in URIs, which must not be shown."""

from __future__ import annotations

import re

DATABASE_PASSWORD = re.compile(
    r"\b((?:postgres|postgresql|mysql|mariadb|mssql|oracle)(?:\+\w{1,20})?://[^\s:/@]{0,100})"
    r":[^\s@]{1,200}@(?:[^\s/@]{1,200}@)?"
)
"""Pattern of a database's address up to its host. Unlike in other addresses, a slash may be part of the password:
SQLAlchemy takes it to be, and generated passwords in base64 have some."""


def redact_uri(uri: str) -> str:
    """Return the URI with its password replaced by ``***``."""
    return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", DATABASE_PASSWORD.sub(r"\1:***@", uri))


def holds_password(uri: str) -> bool:
    return redact_uri(uri) != uri


def without_credentials(address: str) -> str:
    """Return an address without its user and password, for links."""
    return re.sub(r"://[^/@]*@", "://", address)
