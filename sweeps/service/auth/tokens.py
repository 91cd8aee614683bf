"""Access tokens. A token is shown once, when it is created; the database has only its SHA-256, which is safe for 256
random bits (slow hashes are for passwords, which can be guessed)."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, Connection, Select, insert, select, update

from sweeps.errors import ConfigError, UnknownName
from sweeps.service.auth.permissions import ROLES, Principal, Role
from sweeps.service.database import tables

PREFIX = "sweeps_"
"""Prefix of every token, by which people and secret scanners recognize it."""
PATTERN = re.compile(rf"\b{PREFIX}[A-Za-z0-9_-]{{43}}(?![A-Za-z0-9_-])")
"""Pattern of a token: the prefix and 256 bits in base64."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]{0,99}")
"""Pattern of the names of users and projects."""
USED_EVERY_S = 60.0
"""Minimum seconds between two updates of the time of last use."""


class Token(BaseModel):
    """Stored properties of a token. Times are seconds since 1970 (UTC)."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: int
    """Number of the token."""
    label: str
    """Note for the users."""
    user: str
    """Name of the user."""
    role: Role
    """metrics, read, run or admin."""
    projects: tuple[str, ...]
    """Projects that the user may see and use."""
    created: float
    """Time at which the token was created."""
    expires: float | None
    """Time at which the token expires."""
    revoked: float | None
    """Time at which the token was revoked."""
    used: float | None
    """Time at which the token was last used."""

    @property
    def principal(self) -> Principal:
        """Principal of requests with this token."""
        return Principal(self.user, self.role, self.projects, self.id)

    def is_valid(self, now: float) -> bool:
        """Whether the token is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def told(self) -> dict[str, str | int]:
        """Return the token's properties for the audit log."""
        return {"token": self.id, "of": self.user, "role": self.role, "projects": ", ".join(self.projects)}


def digest(secret: str) -> str:
    """Return the hash of a token or cookie, as stored in the database."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create(
    connection: Connection,
    user: str,
    role: str,
    now: float,
    *,
    projects: Sequence[str] = (),
    label: str = "",
    lasts_s: float | None = None,
) -> tuple[Token, str]:
    """Create a token that lasts for some seconds, or for ever; return its description, and the token itself, which is
    not stored.

    Raises:
        ConfigError: A name, the role or the label is invalid.
    """
    for key, names in (("--user", [user]), ("--project", projects)):
        for name in names:
            if not NAME.fullmatch(name):
                raise ConfigError(f"{key}={name}: use letters, digits, '@', '.', '_', '+' and '-', at most 100")
    if role not in ROLES:
        raise ConfigError(f"--role={role}: must be one of {', '.join(ROLES)}")
    if len(label) > 200 or not label.isprintable():
        raise ConfigError("--label: use at most 200 printable characters")
    secret = PREFIX + secrets.token_urlsafe(32)
    expires = None if lasts_s is None else now + lasts_s
    values = {"label": label, "user": user, "role": role, "projects": [*projects], "created": now, "expires": expires}
    made = connection.execute(insert(tables.tokens).values(digest=digest(secret), **values))
    assert made.inserted_primary_key is not None
    return _find(connection, made.inserted_primary_key[0]), secret


def list_tokens(connection: Connection) -> list[Token]:
    """Return all tokens, including revoked and expired ones, oldest first."""
    return _tokens(connection, select(tables.tokens).order_by(tables.tokens.c.id))


def revoke(connection: Connection, number: int, now: float) -> Token:
    """Revoke a token and its sessions with immediate effect; raise ``UnknownName`` if there is no such token."""
    valid = (tables.tokens.c.id == number, tables.tokens.c.revoked.is_(None))
    connection.execute(update(tables.tokens).where(*valid).values(revoked=now))
    return _find(connection, number)


def find_valid(connection: Connection, secret: str, now: float) -> Token | None:
    """Return the valid token with this secret; None if there is none. The lookup by hash takes a time that reveals
    nothing about the secret."""
    return _find_valid(connection, tables.tokens.c.digest == digest(secret), now)


def find_valid_by_id(connection: Connection, number: int, now: float) -> Token | None:
    return _find_valid(connection, tables.tokens.c.id == number, now)


def rights_of(connection: Connection, user: str, project: str, now: float) -> Principal:
    """Return a user's current rights, for the start of a job or the firing of a schedule that was requested earlier.
    A user without a valid token can read their own sweeps and those of the job's project.
    """
    if not any_made(connection):
        return Principal(user, "admin")  # like permissions.LOCAL
    own = (tables.tokens.c.user == user) & (tables.tokens.c.role != "metrics")  # which gives no access to sweeps
    valid = [token for token in _tokens(connection, select(tables.tokens).where(own)) if token.is_valid(now)]
    if not valid:
        return Principal(user, "run", (project,))
    role = max((token.role for token in valid), key=ROLES.index)
    return Principal(user, role, tuple(dict.fromkeys(each for token in valid for each in token.projects)))


def note_use(connection: Connection, token: Token, now: float) -> None:
    """Update the time of last use; see ``is_use_old``."""
    connection.execute(update(tables.tokens).where(tables.tokens.c.id == token.id).values(used=now))


def is_use_old(token: Token, now: float) -> bool:
    """Whether the time of last use is due for an update."""
    return token.used is None or now - token.used >= USED_EVERY_S


def any_made(connection: Connection) -> bool:
    """Whether a token was ever created; the service then requires tokens even after the last one has expired."""
    return connection.execute(select(tables.tokens.c.id).limit(1)).first() is not None


def admin_exists(connection: Connection, now: float) -> bool:
    """Whether a valid admin token exists."""
    return any(token.role == "admin" and token.is_valid(now) for token in list_tokens(connection))


def _find(connection: Connection, number: int) -> Token:
    found = _tokens(connection, select(tables.tokens).where(tables.tokens.c.id == number))
    if not found:
        raise UnknownName(f"there is no token {number}; `python -m sweeps token list` shows all")
    return found[0]


def _find_valid(connection: Connection, condition: ColumnElement[bool], now: float) -> Token | None:
    found = _tokens(connection, select(tables.tokens).where(condition))
    return next((token for token in found if token.is_valid(now)), None)


def _tokens(connection: Connection, statement: Select[Any]) -> list[Token]:
    return [Token.model_validate(dict(row)) for row in connection.execute(statement).mappings()]
