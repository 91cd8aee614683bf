"""Chromium as Debian has it, and pages in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page
    from web_server import WebServer

PROGRAMS = ("chromium-headless-shell", "chromium")
"""The shell, which has no windows, takes two fifths less processor time."""


def chromium() -> str:
    """Path of the program; without one the test is skipped."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name)) is not None), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install -y chromium-headless-shell")
    return found


def tab_of(browser: Browser, server: WebServer, within_ms: int, **options: Any) -> Iterator[Page]:
    """A tab for all tests of a file: a new one would start a process, and compile the page's scripts again.

    Args:
        browser: Where it is opened.
        server: The service whose pages it shows.
        within_ms: Milliseconds until what is waited for must have come.
        **options: Options of the browser's context.
    """
    context = browser.new_context(base_url=server.url, **options)
    context.set_default_timeout(within_ms)
    yield context.new_page()
    context.close()


def watched(tab: Page, expected: Sequence[str] = ()) -> Iterator[Page]:
    """A tab during one test; nothing it does may break the content security policy or end in another error.

    Args:
        tab: What other tests may have used before.
        expected: Words of the errors that the console may have.
    """
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    def fail(error: Error) -> None:
        errors.append(str(error))

    size = tab.viewport_size
    tab.on("console", note)
    tab.on("pageerror", fail)
    yield tab
    tab.remove_listener("console", note)
    tab.remove_listener("pageerror", fail)
    tab.unroute_all()
    if size is not None:
        tab.set_viewport_size(size)
    assert [text for text in errors if not any(word in text for word in expected)] == []
