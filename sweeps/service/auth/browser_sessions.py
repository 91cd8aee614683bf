"""Sessions of signed-in browsers. A cookie of 256 random bits stands for a token, which the browser does not keep; the
database has only the SHA-256 of the cookie, so that no signing key must be kept or shared."""

from __future__ import annotations

import hmac
import secrets

from sqlalchemy import Connection, delete, insert, select

from sweeps.service.auth import tokens
from sweeps.service.auth.tokens import Token, digest
from sweeps.service.database import tables


def begin(connection: Connection, token: Token, now: float, lasts_s: float) -> str:
    """Begin a session and return its cookie; expired sessions are removed. It expires after ``lasts_s``, or with its
    token."""
    connection.execute(delete(tables.sessions).where(tables.sessions.c.expires <= now))
    cookie = secrets.token_urlsafe(32)
    expires = min(now + lasts_s, token.expires or float("inf"))
    values = {"digest": digest(cookie), "token": token.id, "expires": expires}
    connection.execute(insert(tables.sessions).values(**values))
    return cookie


def find_token(connection: Connection, cookie: str, now: float) -> Token | None:
    """Return the token of a session; None if the session or the token is invalid."""
    statement = select(tables.sessions).where(tables.sessions.c.digest == digest(cookie))
    session = connection.execute(statement).mappings().one_or_none()
    if session is None or session["expires"] <= now:
        return None
    return tokens.find_valid_by_id(connection, session["token"], now)


def end(connection: Connection, cookie: str) -> None:
    connection.execute(delete(tables.sessions).where(tables.sessions.c.digest == digest(cookie)))


def form_token(cookie: str) -> str:
    """Return the CSRF token of a session, which its forms include. It is derived from the cookie, which other sites can
    cause to be sent but cannot read."""
    return digest(f"form of {cookie}")


def is_form_token(text: str, cookie: str) -> bool:
    """Whether a string is the CSRF token of this session."""
    return hmac.compare_digest(text.encode(), form_token(cookie).encode())
