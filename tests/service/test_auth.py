"""The gate and the guard: who gets to a route, from where, with what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Form, Request, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import Engine

from sweeps.config.access import Access
from sweeps.service.auth import tokens
from sweeps.service.auth.auth import Admin, Authenticator, Reader, Runner, expensive, form_token, sign_in, sign_out
from sweeps.service.auth.middleware import HEADERS, SecurityMiddleware
from sweeps.service.database.engine import open_database, writing

HERE = "http://127.0.0.1:8642"
ELSEWHERE = "https://sweeps.example.org"


class Stopped:
    """A clock that stands where it is put."""

    time = 1000.0

    def now(self) -> float:
        return self.time

    def steady(self) -> float:
        return self.time

    def wait(self, wake: Any, seconds: float) -> bool:
        raise AssertionError


class Body(BaseModel):
    text: Any = None


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> Stopped:
    return Stopped()


def make_app(engine: Engine, clock: Stopped, *, loopback: bool = True, **access: Any) -> FastAPI:
    app = FastAPI(openapi_url=None)
    authenticator = app.state.authenticator = Authenticator(engine, Access(**access), clock, loopback=loopback)
    app.add_middleware(SecurityMiddleware, authenticator=authenticator)

    @app.get("/api/read")
    def read(principal: Reader) -> str:
        return principal.user

    @app.post("/api/run")
    def run(principal: Runner, body: Body) -> str:
        return f"{principal.user} {body.text}"

    @app.post("/api/manage")
    def manage(principal: Admin) -> str:
        return principal.user

    @app.get("/api/fails")
    def fails(principal: Reader) -> None:
        raise RuntimeError("inside /srv/secret: token=hunter2")

    @app.get("/api/long", dependencies=[Depends(expensive)])
    def long(principal: Reader) -> str:
        return principal.user

    @app.post("/sign-in")
    def enter(request: Request, response: Response, token: str = Form()) -> bool:
        return sign_in(request, response, token)

    @app.post("/sign-out")
    def leave(request: Request, response: Response, _: Reader) -> None:
        sign_out(request, response)

    @app.get("/form")
    def form(request: Request, _: Reader) -> str:
        return form_token(request)

    @app.post("/form")
    def sent(principal: Runner, text: str = Form()) -> str:
        return f"{principal.user} {text}"

    return app


def client(app: FastAPI, base: str = HERE, token: str | None = None) -> TestClient:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return TestClient(app, base_url=base, headers=headers, raise_server_exceptions=False)


def token_of(engine: Engine, role: str, **values: Any) -> str:
    with writing(engine) as connection:
        return tokens.create(connection, values.pop("user", role), role, 1000.0, **values)[1]


def test_on_loopback_without_tokens_everybody_is_local(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    for base in (HERE, "http://localhost:8642", "http://[::1]:8642"):
        assert client(app, base).get("/api/read").json() == "local"
        assert client(app, base).post("/api/run", json={"text": "x"}).json() == "local x"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:8642"},
        {"Host": "localhost@evil.example"},
        {"Host": ""},
        {"X-Forwarded-For": "10.1.2.3"},
    ],
    ids=str,
)
def test_without_tokens_no_other_name_and_no_proxy_leads_here(
    engine: Engine, clock: Stopped, headers: dict[str, str]
) -> None:
    assert client(make_app(engine, clock)).get("/api/read", headers=headers).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8642.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/api/run", "/form", "/sign-in"])
def test_another_sites_page_changes_nothing(engine: Engine, clock: Stopped, headers: dict[str, str], path: str) -> None:
    answer = client(make_app(engine, clock)).post(path, json={}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.json()["detail"]


def test_our_own_page_and_a_link_to_it_pass(engine: Engine, clock: Stopped) -> None:
    here = client(make_app(engine, clock))
    own = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
    assert here.post("/api/run", json={}, headers=own).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert here.get("/api/read", headers=link).status_code == 200
    assert here.get("/api/read", headers={**link, "Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert (
        here.get("/api/read", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    )


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_the_api_takes_json_alone(engine: Engine, clock: Stopped, kind: str) -> None:
    here = client(make_app(engine, clock))
    assert here.post("/api/run", content=b'{"text": 1}', headers={"Content-Type": kind}).status_code == 415
    assert here.post("/api/manage", headers={"Content-Type": kind}).status_code == 415
    assert here.post("/api/manage").status_code == 200


def test_roles_each_may_what_those_before_may(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    may = {
        role: [
            client(app, token=secret).get("/api/read").status_code,
            client(app, token=secret).post("/api/run", json={}).status_code,
            client(app, token=secret).post("/api/manage").status_code,
        ]
        for role in ("read", "run", "admin")
        if (secret := token_of(engine, role))
    }
    assert may == {"read": [200, 403, 403], "run": [200, 200, 403], "admin": [200, 200, 200]}


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


def test_a_wrong_token_does_not_sign_in_and_is_counted(engine: Engine, clock: Stopped) -> None:
    browser = client(make_app(engine, clock, refusals_per_minute=3))
    token_of(engine, "run")
    for _ in range(3):
        answer = browser.post("/sign-in", data={"token": "sweeps_" + "A" * 43})
        assert answer.json() is False
        assert "set-cookie" not in answer.headers
    assert browser.post("/sign-in", data={"token": "x"}).status_code == 429


def test_who_asks_too_often_is_told_when_to_come_again(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock, requests_per_minute=5, changes_per_minute=2, refusals_per_minute=2)
    ada, bob = token_of(engine, "run", user="ada"), token_of(engine, "run", user="bob")
    codes = [client(app, token=ada).post("/api/run", json={}).status_code for _ in range(3)]
    codes += [client(app, token=ada).get("/api/read").status_code for _ in range(3)]
    assert codes == [200, 200, 429, 200, 200, 429]
    refused = client(app, token=ada).get("/api/read")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert [client(app).get("/api/read").status_code for _ in range(3)] == [401, 401, 429]
    assert client(app, token=bob).get("/api/read").status_code == 200


def test_only_so_many_expensive_answers_are_made_at_once(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock, expensive_at_once=1)
    assert client(app).get("/api/long").status_code == 200
    with app.state.authenticator.rate_limits.expensive():
        refused = client(app).get("/api/long")
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "5"
    assert client(app).get("/api/long").status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'"' + b"x" * 2000 + b'"', 413),
        (b'{"text": ' + b"[" * 50 + b"]" * 50 + b"}", 400),
        (b'{"text": "' + b"[" * 50 + b'"}', 200),
        (b'{"text": NaN}', 400),
        (b'{"text": "\\ud800"}', 400),
        (b'{"text": "\\u0000"}', 400),
        (b'{"text": 1', 400),
        (b"\xff\xfe", 400),
        (b"[]", 422),
    ],
    ids=["large", "deep", "brackets-in-a-text", "nan", "half-a-character", "null", "torn", "bytes", "list"],
)
def test_a_body_that_nobody_should_have_to_read_is_refused(
    engine: Engine, clock: Stopped, body: bytes, status: int
) -> None:
    app = make_app(engine, clock, max_body_kib=1)
    answer = client(app).post("/api/run", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status

    def in_parts() -> Iterator[bytes]:  # without a Content-Length
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    again = client(app).post("/api/run", content=in_parts(), headers={"Content-Type": "application/json"})
    assert again.status_code == status


def test_a_body_that_does_not_come_is_not_waited_for(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock, body_timeout_s=0.1)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/run", "raw_path": b"/api/run", "query_string": b"",
        "headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http", "root_path": "",
    }  # fmt: skip
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 10))
    assert sent[0]["status"] == 408


def test_an_error_of_ours_is_answered_without_its_insides(
    engine: Engine, clock: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client(make_app(engine, clock)).get("/api/fails")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert "Error" not in answer.text
    assert answer.json()["detail"].rpartition(" ")[2] in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("path", ["/api/read", "/api/fails", "/nowhere", "/api/read?x=%00"])
def test_every_answer_has_the_headers_that_keep_browsers_safe(engine: Engine, clock: Stopped, path: str) -> None:
    answer = client(make_app(engine, clock)).get(path)
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "access-control-allow-origin" not in answer.headers


class Unread:
    """JSON that is never parsed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: list[bytes] = []
        monkeypatch.setattr("sweeps.service.auth.middleware.check_json", lambda body, depth: self.bodies.append(body))


def test_the_body_of_who_has_no_good_token_is_not_looked_at(
    engine: Engine, clock: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, unread = make_app(engine, clock), Unread(monkeypatch)
    good = token_of(engine, "run")
    for token in (None, "x", "sweeps_" + "A" * 43):
        answer = client(app, token=token).post("/api/run", json={"text": "x"})
        assert (answer.status_code, unread.bodies) == (401, [])
        assert client(app, token=token).post("/form", data={"text": "x"}).status_code == 401
    assert client(app, token=good).post("/api/run", json={"text": "x"}).status_code == 200
    assert len(unread.bodies) == 1


def test_a_token_is_looked_up_once_for_a_request_and_what_is_none_not_at_all(
    engine: Engine, clock: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    find = tokens.find_valid
    monkeypatch.setattr(tokens, "find_valid", lambda *given: looked_up.append(given[1]) or find(*given))
    app, good = make_app(engine, clock), token_of(engine, "run")
    for token in (None, "x", "sweeps_short", "A" * 50_000):
        assert client(app, token=token).post("/api/run", json={}).status_code == 401
    assert looked_up == []
    assert client(app, token=good).post("/api/run", json={}).status_code == 200
    assert looked_up == [good]


def test_who_has_guessed_too_often_is_refused_before_the_token_is_looked_at(
    engine: Engine, clock: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, good = make_app(engine, clock, refusals_per_minute=2), token_of(engine, "run")
    browser, looked_up = client(app), []
    for _ in range(2):
        browser.post("/sign-in", data={"token": "sweeps_" + "A" * 43})
    monkeypatch.setattr(tokens, "find_valid", lambda *given: looked_up.append(given))
    for token in ("sweeps_" + "B" * 43, good):
        assert browser.post("/sign-in", data={"token": token}).status_code == 429
    assert looked_up == []


def test_a_wrong_token_at_the_sign_in_holds_up_no_writer(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    token_of(engine, "run")
    with writing(engine):  # a transaction that writes would wait for this one
        assert client(app).post("/sign-in", data={"token": "sweeps_" + "A" * 43}).json() is False


def test_nobody_sends_a_large_body_to_the_sign_in(engine: Engine, clock: Stopped) -> None:
    assert client(make_app(engine, clock)).post("/sign-in", data={"token": "x" * 20_000}).status_code == 413
