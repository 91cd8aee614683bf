"""The guard's limits: how often and how much anybody may ask, and what is looked at before it is known who asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from guarded_app import Stopped, client, make_app, token_of
from postgres import on_sqlite_alone
from sqlalchemy import Engine

from sweeps.service.auth import tokens
from sweeps.service.database.engine import writing

pytestmark = on_sqlite_alone


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


def test_a_body_that_nobody_should_have_to_read_is_refused(engine: Engine, clock: Stopped) -> None:
    here = client(make_app(engine, clock, max_body_kib=1))
    for body, status in (
        (b'"' + b"x" * 2000 + b'"', 413),
        (b'{"text": ' + b"[" * 50 + b"]" * 50 + b"}", 400),
        (b'{"text": "' + b"[" * 50 + b'"}', 200),
        (b'{"text": NaN}', 400),
        (b'{"text": "\\ud800"}', 400),
        (b'{"text": "\\u0000"}', 400),
        (b'{"text": 1', 400),
        (b"\xff\xfe", 400),
        (b"[]", 422),
    ):
        parts = iter([body[start : start + 100] for start in range(0, len(body), 100)])  # has no Content-Length
        for content in (body, parts):
            answer = here.post("/api/run", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == status, body


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


def test_the_body_of_who_has_no_good_token_is_not_looked_at(
    engine: Engine, clock: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[bytes] = []
    monkeypatch.setattr("sweeps.service.auth.middleware.check_json", lambda body, depth: looked_at.append(body))
    app, good = make_app(engine, clock), token_of(engine, "run")
    for token in (None, "x", "sweeps_" + "A" * 43):
        answer = client(app, token=token).post("/api/run", json={"text": "x"})
        assert (answer.status_code, looked_at) == (401, [])
        assert client(app, token=token).post("/form", data={"text": "x"}).status_code == 401
    assert client(app, token=good).post("/api/run", json={"text": "x"}).status_code == 200
    assert len(looked_at) == 1


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


def test_a_wrong_token_does_not_sign_in_and_who_guesses_too_often_is_refused_before_the_token_is_looked_at(
    engine: Engine, clock: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, good = make_app(engine, clock, refusals_per_minute=2), token_of(engine, "run")
    browser, looked_up = client(app), []
    for _ in range(2):
        answer = browser.post("/sign-in", data={"token": "sweeps_" + "A" * 43})
        assert (answer.json(), "set-cookie" in answer.headers) == (False, False)
    monkeypatch.setattr(tokens, "find_valid", lambda *given: looked_up.append(given))
    for token in ("x", "sweeps_" + "B" * 43, good):
        assert browser.post("/sign-in", data={"token": token}).status_code == 429
    assert looked_up == []


def test_a_wrong_token_at_the_sign_in_holds_up_no_writer(engine: Engine, clock: Stopped) -> None:
    app = make_app(engine, clock)
    token_of(engine, "run")
    with writing(engine):  # a transaction that writes would wait for this one
        assert client(app).post("/sign-in", data={"token": "sweeps_" + "A" * 43}).json() is False


def test_nobody_sends_a_large_body_to_the_sign_in(engine: Engine, clock: Stopped) -> None:
    assert client(make_app(engine, clock)).post("/sign-in", data={"token": "x" * 20_000}).status_code == 413
