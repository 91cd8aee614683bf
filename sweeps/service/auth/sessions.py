"""Browsers that are signed in: a cookie stands for a token, which the browser does not keep. The cookie is 256 random
bits, of which the database has the SHA-256 alone: nobody can make one up, and no key must be kept or shared."""

from __future__ import annotations

import hmac
import secrets

from sqlalchemy import Connection, delete, insert, select

from sweeps.service.auth import tokens
from sweeps.service.auth.tokens import Token, digest
from sweeps.service.database import tables


def begin(connection: Connection, token: Token, now: float, lasts_s: float) -> str:
    """Sign a browser in; returns the cookie. Sessions that have expired are forgotten.

    Args:
        connection: A writing transaction.
        token: With which it signs in.
        now: The time.
        lasts_s: Seconds until it expires, if the token does not before.
    """
    connection.execute(delete(tables.sessions).where(tables.sessions.c.expires <= now))
    cookie = secrets.token_urlsafe(32)
    expires = min(now + lasts_s, token.expires or float("inf"))
    values = {"digest": digest(cookie), "token": token.id, "expires": expires}
    connection.execute(insert(tables.sessions).values(**values))
    return cookie


def holder(connection: Connection, cookie: str, now: float) -> Token | None:
    """The token for which a cookie stands, if both are good."""
    asked = select(tables.sessions).where(tables.sessions.c.digest == digest(cookie))
    session = connection.execute(asked).mappings().one_or_none()
    if session is None or session["expires"] <= now:
        return None
    return tokens.numbered(connection, session["token"], now)


def end(connection: Connection, cookie: str) -> None:
    """Sign a browser out."""
    connection.execute(delete(tables.sessions).where(tables.sessions.c.digest == digest(cookie)))


def form_token(cookie: str) -> str:
    """What a page's forms carry along, so that no other site's form can pass for ours: it follows from the cookie,
    which other sites can have sent but cannot read."""
    return digest(f"form of {cookie}")


def is_form_token(text: str, cookie: str) -> bool:
    """Whether a form came from a page of this session."""
    return hmac.compare_digest(text.encode(), form_token(cookie).encode())
