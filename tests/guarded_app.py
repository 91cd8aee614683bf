"""A service with routes of every role behind the gate and the guard."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Form, Request, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel
from request_loop import client_of_app
from sqlalchemy import Engine

from sweeps.config.access import Access
from sweeps.service.auth import tokens
from sweeps.service.auth.auth import Admin, Authenticator, Reader, Runner, expensive, form_token, sign_in, sign_out
from sweeps.service.auth.middleware import SecurityMiddleware
from sweeps.service.clock import Clock
from sweeps.service.database.engine import writing

HERE = "http://127.0.0.1:8642"


class Stopped(Clock):
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
    return client_of_app(app, base_url=base, headers=headers, raise_server_exceptions=False)


def token_of(engine: Engine, role: str, **values: Any) -> str:
    with writing(engine) as connection:
        return tokens.create(connection, values.pop("user", role), role, 1000.0, **values)[1]
