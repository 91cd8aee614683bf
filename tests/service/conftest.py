"""Fixtures of the service's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from chromium import WITHIN_MS, chromium
from guarded_app import Stopped

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def clock() -> Stopped:
    return Stopped()


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
