"""Tokens: who holds one is known. A token is shown once, when it is made; the database has its SHA-256 alone, which is
enough for 256 random bits (a slow hash is for passwords, which can be guessed)."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from sweeps.errors import ConfigError, UnknownName
from sweeps.service.auth.principal import ROLES, Principal, Role
from sweeps.service.database import tables

PREFIX = "sweeps_"
"""Of every token, so that a person, and a scanner for secrets, sees what it is."""
PATTERN = re.compile(rf"\b{PREFIX}[A-Za-z0-9_-]{{43}}(?![A-Za-z0-9_-])")
"""256 bits, as text."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._+-]{0,99}")
"""Users and projects."""
USED_EVERY_S = 60.0
"""How exactly it is noted when a token was last used: a write for every request would be too many."""


@dataclass(frozen=True)
class Token:
    """What is known of a token. Times are seconds since 1970 (UTC)."""

    id: int
    label: str
    user: str
    role: Role
    projects: tuple[str, ...]
    created: float
    expires: float | None
    revoked: float | None
    used: float | None

    @property
    def principal(self) -> Principal:
        """Who holds it."""
        return Principal(self.user, self.role, self.projects)

    def holds(self, now: float) -> bool:
        """Whether it is good at that time."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def as_json(self) -> dict[str, Any]:
        """For ``--json``; the times as they are."""
        return {**self.__dict__, "projects": [*self.projects]}


def digest(secret: str) -> str:
    """What the database has instead of a token, or of a session's secret."""
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
    """Make a token.

    Args:
        connection: A writing transaction.
        user: Who is to hold it.
        role: ``read``, ``run`` or ``admin``.
        now: The time.
        projects: Whose sweeps it reaches besides its user's own.
        label: What it is for.
        lasts_s: Seconds until it expires; None: never.

    Returns:
        The token's description, and the token, which cannot be had again.

    Raises:
        ConfigError: A name or the role cannot be.
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


def listed(connection: Connection) -> list[Token]:
    """All there ever were, the oldest first."""
    return [_token(row) for row in connection.execute(select(tables.tokens).order_by(tables.tokens.c.id)).mappings()]


def revoke(connection: Connection, number: int, now: float) -> Token:
    """Let a token be good no more, at once, together with the sessions that began with it.

    Raises:
        UnknownName: There is no such token.
    """
    token = _find(connection, number)
    if token.revoked is None:
        connection.execute(update(tables.tokens).where(tables.tokens.c.id == number).values(revoked=now))
    return _find(connection, number)


def holder(connection: Connection, secret: str, now: float) -> Token | None:
    """The token, if it is good. It is looked up by its digest: how long that takes says nothing of the token."""
    asked = select(tables.tokens).where(tables.tokens.c.digest == digest(secret))
    return _good(connection.execute(asked).mappings().one_or_none(), now)


def numbered(connection: Connection, number: int, now: float) -> Token | None:
    """The token of this number, if it is good."""
    asked = select(tables.tokens).where(tables.tokens.c.id == number)
    return _good(connection.execute(asked).mappings().one_or_none(), now)


def note_use(connection: Connection, token: Token, now: float) -> None:
    """Remember when it was last used; see ``is_use_old``."""
    connection.execute(update(tables.tokens).where(tables.tokens.c.id == token.id).values(used=now))


def is_use_old(token: Token, now: float) -> bool:
    """Whether it is time to note that it is used."""
    return token.used is None or now - token.used >= USED_EVERY_S


def any_made(connection: Connection) -> bool:
    """Whether there ever was a token: a service that has had one does not open to all when the last has expired."""
    return connection.execute(select(tables.tokens.c.id).limit(1)).first() is not None


def admin_exists(connection: Connection, now: float) -> bool:
    """Whether somebody could manage a service that demands tokens."""
    return any(token.role == "admin" and token.holds(now) for token in listed(connection))


def _find(connection: Connection, number: int) -> Token:
    asked = select(tables.tokens).where(tables.tokens.c.id == number)
    row = connection.execute(asked).mappings().one_or_none()
    if row is None:
        raise UnknownName(f"there is no token {number}; `python -m sweeps token list` shows all")
    return _token(row)


def _good(row: RowMapping | None, now: float) -> Token | None:
    token = None if row is None else _token(row)
    return token if token is not None and token.holds(now) else None


def _token(row: RowMapping) -> Token:
    values = {name: value for name, value in row.items() if name != "digest"}
    return Token(**{**values, "projects": tuple(values["projects"])})
