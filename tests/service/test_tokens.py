"""Tokens: shown once, hashed at rest, good until they expire or are revoked."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from service_databases import make_service_database
from sqlalchemy import Engine, select

from sweeps.cli import run_command
from sweeps.config.service import Service
from sweeps.errors import ConfigError, UnknownName
from sweeps.service.app_context import AppContext
from sweeps.service.auth import tokens
from sweeps.service.auth.permissions import Principal, project_of
from sweeps.service.database import tables
from sweeps.service.database.engine import writing


@pytest.fixture
def service_database(tmp_path: Path) -> str:
    return make_service_database(f"sqlite:///{tmp_path / 'service.db'}")


def test_rights_at_a_later_time_are_those_of_the_tokens_that_open_sweeps(engine: Engine) -> None:
    with writing(engine) as connection:
        tokens.create(connection, "ada", "run", 100.0, projects=["vision"], lasts_s=50.0)
        tokens.create(connection, "ada", "metrics", 100.0)
        assert tokens.rights_of(connection, "ada", "text", 120.0) == Principal("ada", "run", ("vision",))
        assert tokens.rights_of(connection, "ada", "text", 160.0) == Principal("ada", "run", ("text",))


def test_a_token_is_known_by_its_digest_and_kept_nowhere(engine: Engine, tmp_path: Path) -> None:
    with writing(engine) as connection:
        token, secret = tokens.create(connection, "ada", "run", 100.0, projects=["vision"], label="laptop")
    assert tokens.PATTERN.fullmatch(secret)
    with engine.connect() as connection:
        found = tokens.find_valid(connection, secret, 101.0)
        assert found == token
        assert found is not None
        assert found.principal == Principal("ada", "run", ("vision",))
        assert tokens.find_valid(connection, secret + "x", 101.0) is None
        assert tokens.find_valid(connection, tokens.digest(secret), 101.0) is None
        assert connection.execute(select(tables.tokens.c.digest)).scalar_one() == tokens.digest(secret)
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("service.db*"))


def test_a_token_is_revoked_once_and_an_unknown_one_is_named(engine: Engine) -> None:
    with writing(engine) as connection:
        token, _ = tokens.create(connection, "bob", "admin", 100.0)
        assert [tokens.revoke(connection, token.id, now).revoked for now in (160.0, 170.0)] == [160.0, 160.0]
        assert not tokens.admin_exists(connection, 161.0)
        with pytest.raises(UnknownName, match="no token 17"):
            tokens.revoke(connection, 17, 160.0)


@pytest.mark.parametrize(
    ("user", "role", "project"), [("a b", "run", "p"), ("", "run", "p"), ("a", "root", "p"), ("a", "run", "../p")]
)
def test_a_token_with_a_name_that_cannot_be_is_refused(engine: Engine, user: str, role: str, project: str) -> None:
    with writing(engine) as connection, pytest.raises(ConfigError, match="--"):
        tokens.create(connection, user, role, 0.0, projects=[project])


def test_nobody_submits_into_a_project_that_is_not_theirs() -> None:
    ada = Principal("ada", "run", ("vision", "speech"))
    assert project_of(ada, None) == "vision"
    assert project_of(ada, "ada") == "ada"
    assert project_of(Principal("bob", "run"), None) == "bob"
    assert project_of(Principal("eve", "admin"), "vision") == "vision"
    with pytest.raises(UnknownName, match="use one of vision, speech, ada"):
        project_of(ada, "robotics")


def test_a_token_is_made_listed_and_revoked_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["token", "create", "--user", "ada", "--role", "run", "--expires", "90d"]) == (0, None)
    made = capsys.readouterr()
    assert tokens.PATTERN.fullmatch(made.out.strip())
    assert made.out.strip() not in made.err
    assert run_command(["token", "create", "--user", "eve", "--role", "admin", "--file", "t"]) == (0, None)
    assert capsys.readouterr().out == ""
    assert tokens.PATTERN.fullmatch(Path("t").read_text().strip())
    assert stat.S_IMODE(Path("t").stat().st_mode) == 0o600
    assert run_command(["token", "revoke", "1"]) == (0, None)
    capsys.readouterr()
    assert run_command(["token", "list", "--json"]) == (0, None)
    first, second = json.loads(capsys.readouterr().out)
    assert (first["user"], first["role"], second["user"]) == ("ada", "run", "eve")
    assert first["expires"] - first["created"] == 90 * 86400
    assert first["revoked"] is not None
    assert "digest" not in first
    for wrong in (
        ["create", "--user", "ada", "--role", "root"],
        ["create", "--user", "ada", "--role", "run", "--expires", "soon"],
        ["create", "--user", "ada", "--role", "run", "--file", "t"],
        ["revoke", "17"],
        ["list", "database=nothing://x"],
    ):
        assert run_command(["token", *wrong])[0] == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("sweeps: ")
        assert "Traceback" not in printed.err


def test_a_token_is_shown_in_a_container_whose_user_has_no_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert run_command(["token", "create", "--user", "ada", "--role", "admin"]) == (0, None)
    assert tokens.PATTERN.fullmatch(capsys.readouterr().out.strip())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0"])
def test_beyond_this_machine_nothing_is_served_without_an_admin(host: str) -> None:
    with pytest.raises(ConfigError, match="make it with `python -m sweeps token create --user YOU --role admin`"):
        AppContext(Service(host=host))
