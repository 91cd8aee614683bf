"""The gate and the guard: who gets to a route, from where, with what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from guarded_app import HERE, Stopped, client, make_app, token_of
from service_databases import make_service_database
from sqlalchemy import Engine

from sweeps.service.auth import tokens
from sweeps.service.auth.middleware import HEADERS
from sweeps.service.database.engine import open_database, writing

ELSEWHERE = "https://sweeps.example.org"


@pytest.fixture
def service_database(tmp_path: Path) -> str:
    return make_service_database(f"sqlite:///{tmp_path}/service.db")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service without tokens, as asked on its own machine."""
    folder = tmp_path_factory.mktemp("here")
    engine = open_database(make_service_database(f"sqlite:///{folder}/service.db"))
    yield client(make_app(engine, Stopped()))
    engine.dispose()


def test_on_loopback_without_tokens_everybody_is_local(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    for base in (HERE, "http://localhost:8642", "http://[::1]:8642"):
        assert client(app, base).get("/api/read").json() == "local"
        assert client(app, base).post("/api/run", json={"text": "x"}).json() == "local x"


def test_without_tokens_no_other_name_and_no_proxy_leads_here(here: TestClient) -> None:
    for headers in (
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:8642"},
        {"Host": "localhost@evil.example"},
        {"Host": ""},
        {"X-Forwarded-For": "10.1.2.3"},
    ):
        assert here.get("/api/read", headers=headers).status_code == 421, headers


@pytest.mark.parametrize("path", ["/api/run", "/form", "/sign-in"])
def test_another_sites_page_changes_nothing(here: TestClient, path: str) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8642.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ):
        answer = here.post(path, json={}, headers=headers)
        assert (answer.status_code, "another site" in answer.json()["detail"]) == (403, True), headers


def test_our_own_page_and_a_link_to_it_pass(here: TestClient) -> None:
    own = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
    assert here.post("/api/run", json={}, headers=own).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert here.get("/api/read", headers=link).status_code == 200
    assert here.get("/api/read", headers={**link, "Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert (
        here.get("/api/read", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    )


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_the_api_takes_json_alone(here: TestClient, kind: str) -> None:
    assert here.post("/api/run", content=b'{"text": 1}', headers={"Content-Type": kind}).status_code == 415
    assert here.post("/api/manage", headers={"Content-Type": kind}).status_code == 415
    assert here.post("/api/manage").status_code == 200


def test_without_a_good_token_nobody_gets_in(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    short, long = token_of(engine, "admin", lasts_s=10.0), token_of(engine, "admin")
    assert client(app, token=short).get("/api/read").status_code == 200
    clock.time += 10
    with writing(engine) as connection:
        tokens.revoke(connection, 2, clock.time)
    for token in (None, "", "x", short, long, "sweeps_" + "A" * 43, tokens.digest(short)):
        for answer in (client(app, token=token).get("/api/read"), client(app, token=token).post("/api/run", json={})):
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"


def test_a_service_that_had_a_token_does_not_open_when_it_ends(engine: Engine, clock: Stopped) -> None:
    token_of(engine, "admin", lasts_s=1.0)
    clock.time += 100
    assert client(make_app(engine, clock)).get("/api/read").status_code == 401


def test_beyond_loopback_nobody_is_local(engine: Engine, clock: Stopped) -> None:
    assert client(make_app(engine, clock, loopback=False)).get("/api/read").status_code == 401


def test_a_browser_signs_in_and_its_forms_carry_a_token(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    secret = token_of(engine, "run", user="ada")
    browser = client(app, ELSEWHERE)
    answer = browser.post("/sign-in", data={"token": secret})
    cookie = answer.headers["set-cookie"]
    assert answer.json() is True
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Secure", "Max-Age=43200"))
    assert secret not in cookie
    token = browser.get("/form").json()
    assert browser.post("/form", data={"text": "x", "form_token": token}).json() == "ada x"
    assert browser.post("/api/run", json={"text": "x"}, headers={"X-Form-Token": token}).json() == "ada x"
    for wrong in ("", "x", token[:-1], "é"):
        assert browser.post("/form", data={"text": "x", "form_token": wrong}).status_code == 403
    assert browser.post("/form", data={"text": "x"}).status_code == 403
    assert browser.post("/api/run", json={"text": "x"}).status_code == 403
    kept = dict(browser.cookies)
    assert browser.post("/sign-out", headers={"X-Form-Token": token}).status_code == 200
    browser.cookies.update(kept)
    assert browser.get("/form").status_code == 401


def test_a_session_ends_with_its_time_and_with_its_token(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock, session_hours=1.0)
    browser = client(app)
    assert "Secure" not in browser.post("/sign-in", data={"token": token_of(engine, "run")}).headers["set-cookie"]
    assert browser.get("/form").status_code == 200
    clock.time += 3600
    assert browser.get("/form").status_code == 401
    browser.post("/sign-in", data={"token": token_of(engine, "run")})
    assert browser.get("/form").status_code == 200
    with writing(engine) as connection:
        tokens.revoke(connection, 2, clock.time)
    assert browser.get("/form").status_code == 401


def test_an_error_of_ours_is_answered_without_its_insides(here: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = here.get("/api/fails")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "Error" not in answer.text
    assert answer.json()["detail"].rpartition(" ")[2] in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("path", ["/api/read", "/api/fails", "/nowhere", "/api/read?x=%00"])
def test_every_answer_has_the_headers_that_keep_browsers_safe(here: TestClient, path: str) -> None:
    answer = here.get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "access-control-allow-origin" not in answer.headers
