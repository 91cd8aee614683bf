"""Fixtures of the service's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chromium import WITHIN_MS, chromium
from guarded_app import Stopped

if TYPE_CHECKING:
    from fastapi.testclient import TestClient
    from playwright.sync_api import Browser
    from serving import Api, Asking

    from sweeps.service.auth.permissions import Role


@pytest.fixture
def clock() -> Stopped:
    return Stopped()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with the sweeps of ``serving``, and without tokens: everybody may do everything."""
    from serving import serving

    with serving(tmp_path_factory.mktemp("service")) as api:
        yield api


@pytest.fixture(scope="module")
def client(api: Api) -> TestClient:
    """Browser without scripts on that service."""
    return api.client(follow_redirects=False)


@pytest.fixture
def asking(api: Api) -> Asking:
    """Makes clients with a new token of a user."""

    def client(user: str = "bob", role: Role = "run", *projects: str) -> TestClient:
        return api.client(api.token(user, role, *projects), follow_redirects=False)

    return client


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """The system's Chromium for all tests of this process, and the event loop of Playwright."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WITHIN_MS)
    program = chromium()
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield started, loop
        asyncio._set_running_loop(loop)
        started.close()


@pytest.fixture(scope="module")
def browser(_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The system's Chromium."""
    started, loop = _chromium
    asyncio._set_running_loop(loop)  # Playwright leaves its loop marked as running: elsewhere no other one could run
    yield started
    asyncio._set_running_loop(None)
