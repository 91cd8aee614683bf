"""Chromium as Debian has it, and pages in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from web_server import WebServer

PROGRAMS = ("chromium-headless-shell", "chromium")
"""The shell, which has no windows, takes two fifths less processor time."""


def chromium() -> str:
    """Path of the program; without one the test is skipped."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install -y chromium-headless-shell")
    return found


WITHIN_MS = 60_000
"""Until what a page shows has come, on a busy machine."""
HASTE = """
const plain = window.setTimeout;
const shorter = { 800: 200, 2000: 200, 4000: 200, 8000: 200 };
window.setTimeout = (done, ms, ...more) => plain(done, shorter[ms] ?? ms, ...more);
"""
"""Pauses of `page.js` and `preview.js`, in milliseconds, and what they last instead."""


def hasten(page: Page) -> None:
    """Let a page look for news five times a second, and check what is typed at once."""
    page.add_init_script(HASTE)


@contextmanager
def opened_page(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page in a context of its own, which has these options."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.set_default_timeout(WITHIN_MS)
    yield page
    context.close()


def watched_page(browser: Browser, server: WebServer, expected: Sequence[str] = (), **options: Any) -> Iterator[Page]:
    """A page of a service; nothing it does may break the content security policy or end in another error than the
    ``expected`` words on the console."""
    errors: list[str] = []
    with opened_page(browser, base_url=server.url, **options) as page:
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert [text for text in errors if not any(word in text for word in expected)] == []
