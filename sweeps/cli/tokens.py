"""The verbs ``token create``, ``token list`` and ``token revoke``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweeps.cli.app import PATH, app, as_json, of_service, verb
from sweeps.cli.output import print_result, say
from sweeps.errors import ConfigError
from sweeps.files.whole_files import private_opener

if TYPE_CHECKING:
    from rich.table import Table
    from sqlalchemy import Connection

    from sweeps.config.service import Service
    from sweeps.service.auth.tokens import Token


@app.group("token")
def token() -> None:
    """Create, list and revoke the tokens with which people sign in to the service."""


@verb("create", token)
@of_service
@click.option("--user", required=True, metavar="U", help="User of the token.")
@click.option(
    "--role",
    required=True,
    metavar="R",
    help="read, run or admin, each including the ones before it; or metrics.",
)
@click.option(
    "--project", "projects", metavar="P", multiple=True, help="Project whose sweeps the user may see, too. Repeatable."
)
@click.option("--expires", metavar="AGE", help="Time until the token expires, such as 90d; default: never.")
@click.option("--label", metavar="TEXT", default="", help="Description of its purpose.")
@click.option(
    "--file",
    type=PATH,
    help="Write the token to this file, readable only by you, instead of printing it.",
)
def create(
    tokens: tuple[str, ...],
    user: str,
    role: str,
    projects: tuple[str, ...],
    expires: str | None,
    label: str,
    file: Path | None,
    config_dirs: tuple[Path, ...],
) -> None:
    """Create a token: python -m sweeps token create --user ada --role run

    It is shown only once.
    """
    from sweeps.cleaning.policy import parse_age
    from sweeps.service.audit import note_of_operator
    from sweeps.service.auth import tokens as of

    lasts_s = None if expires is None else parse_age(expires, "--expires")
    if file is not None and file.exists():
        raise ConfigError(f"--file={file}: already exists; choose another file")
    with _database(tokens, config_dirs) as (config, connection):
        made, secret = of.create(connection, user, role, time.time(), projects=projects, label=label, lasts_s=lasts_s)
        if file is not None:
            _write(file, secret)
    note_of_operator(config, "token made", **made.told())
    say(f"token {made.id} of {made.user}, role {made.role}; it is shown once")
    if file is None:
        sys.stdout.write(f"{secret}\n")


@verb("list", token)
@of_service
@as_json
def list_tokens(tokens: tuple[str, ...], as_json: bool, config_dirs: tuple[Path, ...]) -> None:
    """List all tokens, including expired and revoked ones, without their secrets."""
    from sweeps.service.auth import tokens as of

    with _database(tokens, config_dirs) as (_, connection):
        found = of.list_tokens(connection)
    print_result(
        lambda: [each.model_dump() for each in found], lambda console: console.print(_table(found)), as_json=as_json
    )


@verb("revoke", token)
@click.argument("number", type=int, metavar="ID")
@of_service
def revoke(number: int, tokens: tuple[str, ...], config_dirs: tuple[Path, ...]) -> None:
    """Revoke a token, and end the browser sessions that signed in with it: python -m sweeps token revoke 3"""
    from sweeps.service.audit import note_of_operator
    from sweeps.service.auth import tokens as of

    with _database(tokens, config_dirs) as (config, connection):
        revoked = of.revoke(connection, number, time.time())
    note_of_operator(config, "token revoked", **revoked.told())
    say(f"token {revoked.id} of {revoked.user} is revoked")


@contextmanager
def _database(tokens: tuple[str, ...], config_dirs: tuple[Path, ...]) -> Iterator[tuple[Service, Connection]]:
    """Open a write transaction in a service's database; yield the service's config and the connection."""
    from sweeps.compose.service_config import compose_service
    from sweeps.service.database.engine import opened_database, writing

    config = compose_service(tokens, config_dirs)
    with opened_database(config.database) as engine, writing(engine) as connection:
        yield config, connection


def _write(file: Path, secret: str) -> None:
    try:
        with open(file, "x", encoding="utf-8", opener=private_opener) as opened:
            opened.write(f"{secret}\n")
    except OSError as error:
        raise ConfigError(f"--file={file}: cannot be written ({error.strerror}); give another one") from None


def _table(found: list[Token]) -> Table:
    from rich.table import Table

    table = Table("id", "user", "role", "projects", "label", "created", "expires", "last used", "state", box=None)
    now = time.time()
    for each in found:
        state = "good" if each.is_valid(now) else "revoked" if each.revoked is not None else "expired"
        times = [_shown(each.created), _shown(each.expires), _shown(each.used)]
        table.add_row(str(each.id), each.user, each.role, ", ".join(each.projects), each.label, *times, state)
    return table


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
