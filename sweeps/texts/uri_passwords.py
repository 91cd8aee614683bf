"""Passwords in URIs, which must not be shown."""

from __future__ import annotations

import re

_DATABASE = r"\b((?:postgres|postgresql|mysql|mariadb|mssql|oracle)(?:\+\w{1,20})?://[^\s:/@]{0,100})"
_DATABASE_PASSWORD = re.compile(rf"{_DATABASE}:[^\s@]{{1,200}}@(?:[^\s/@]{{1,200}}@)?")
"""Pattern of a database's address up to its host. Unlike in other addresses, a slash may be part of the password:
SQLAlchemy takes it to be, and generated passwords in base64 have some."""
DATABASE_PASSWORD_IN_TEXT = re.compile(rf"{_DATABASE}:[^\s@\"']{{1,200}}@(?:[^\s/@\"']{{1,200}}@)?")
"""The same pattern for text such as JSON, where a quote ends the address."""


def redact_uri(uri: str) -> str:
    """Return the URI with its password replaced by ``***``."""
    return re.sub(r"(://[^:/@]*):[^/]*@", r"\1:***@", _DATABASE_PASSWORD.sub(r"\1:***@", uri))


def holds_password(uri: str) -> bool:
    return redact_uri(uri) != uri


def without_credentials(address: str) -> str:
    """Return an address without its user and password, for links."""
    return re.sub(r"://[^/@]*@", "://", address)
