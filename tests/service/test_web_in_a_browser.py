"""The service's pages in a real browser: what is live, what can be pressed, on a desk and on a phone."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import hasten, opened_page, watched_page
from recording import CONFIG, open_recorder, record_small_sweep
from web_server import WebServer, answering

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from playwright.sync_api import Browser, Page, expect  # noqa: E402 - after the line that may skip it

from sweeps.constants import TAG_DASHBOARD  # noqa: E402
from sweeps.service.database.engine import writing  # noqa: E402
from sweeps.service.queue import jobs  # noqa: E402
from sweeps.service.queue.job_requests import Run  # noqa: E402
from sweeps.tracking.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.timeout(240)

PHONE = {"width": 390, "height": 844}
LEAST_TOUCH = 44
"""Pixels that a finger needs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Recorder]:
    """A sweep that runs, beside one that has ended."""
    config = "search:\n  num_trials: 9\ntrain:\n  lr: 0.01\n"
    with contextlib.chdir(folder):
        record_small_sweep(f"sqlite:///{folder}/mlflow.db", "digits-done")
        recorder = open_recorder(f"sqlite:///{folder}/mlflow.db", "digits-alive", config=config)
    yield recorder
    recorder.close("finished")


@pytest.fixture(scope="module")
def server(folder: Path, running: Recorder) -> Iterator[WebServer]:
    with answering(folder) as server:
        engine = server.service.database
        with writing(engine) as connection:
            for sweep in ("digits-alive", "digits-next"):
                asked = Run(conf="digits", name=sweep)
                jobs.submit(connection, asked, sweep, user="mira", project="chat", now=time.time())
            jobs.set_values(connection, 1, state="running", started=2.0)
        yield server


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    """A page on a desk."""
    for page in watched_page(browser, server, ("ERR_CONNECTION_REFUSED",), locale="en-GB", timezone_id="Asia/Tokyo"):
        hasten(page)
        yield page


def test_the_list_shows_what_runs_what_waits_and_what_has_ended_with_times_in_the_viewers_zone(page: Page) -> None:
    page.goto("/")
    names = page.locator("td .name")
    expect(names).to_have_text(["digits-alive", "digits-next", "digits-done"])
    shown = page.locator("#row-digits-done time")
    utc, local = shown.get_attribute("title"), shown.inner_text()
    assert utc is not None
    assert utc.endswith("UTC")
    assert (int(utc[11:13]) + 9) % 24 == int(re.findall(r"(\d\d):", local)[0])
    page.get_by_role("link", name="Finished 1").click()
    expect(names).to_have_text(["digits-done"])
    page.get_by_role("searchbox").fill("nothing like it")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No sweep matches.")).to_be_visible()


def test_a_running_sweep_is_live_and_leads_to_rays_dashboard(page: Page, running: Recorder, server: WebServer) -> None:
    page.goto("/sweeps/digits-alive")
    expect(page.get_by_text("No trial has started yet.")).to_be_visible()
    page.get_by_role("link", name="Report").focus()
    running.trials.start("0", {"train.lr": 0.1}, CONFIG, 1)
    for step in (10, 20):
        running.trials.log("0", step, {"eval/loss": 1 / step})
    expect(page.locator("#trial-0")).to_contain_text("running")
    expect(page.locator("#figure-curves path.js-line").first).to_be_attached()
    expect(page.get_by_role("link", name="Report")).to_be_focused()
    running.trials.end("0", "finished", 20, 1)
    counts = {"finished": 1, "running": 0}
    running.update(counts, [("0", (0.05,), {"train.lr": 0.1})], {"wall_s": 3.0, "train_s": 2.0, "goodput": 0.7})
    expect(page.locator(".tile").first).to_contain_text("0.05")
    expect(page.get_by_text("1 of 9 trials")).to_be_visible()
    link = page.get_by_role("link", name="Ray dashboard")
    expect(link).to_have_count(0)
    running.attach({}, {TAG_DASHBOARD: f"{server.url}/api/v1/health"})  # a server that answers, in place of Ray's
    expect(link).to_be_visible()
    with page.expect_popup() as opened:
        link.click()
    expect(opened.value.get_by_text("ok")).to_be_visible()
    assert opened.value.url == f"{server.url}/api/v1/health"


def test_stop_asks_first_and_escape_leaves_it(page: Page, server: WebServer) -> None:
    def asked() -> float | None:
        with server.service.database.connect() as connection:
            return jobs.of_sweep(connection, "digits-alive")[0].stop_asked

    page.goto("/sweeps/digits-alive")
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Stop digits-alive?")
    expect(dialog).to_be_visible()
    for _ in range(2):  # the page has looked again, and must not have closed it
        page.wait_for_event("response", lambda answer: "part=live" in answer.url)
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert asked() is None
    stop.first.click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("It was asked to stop.")).to_be_visible()
    assert asked() is not None


def test_everything_can_be_reached_by_keyboard_alone(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    reached = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"nobody sees where the focus is: {focused}"
        reached.add(focused)
        if focused == "digits-done":
            break
    assert {"q", "Search", "digits-alive", "digits-done"} <= reached
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="digits-done")).to_be_visible()


@pytest.mark.slow
def test_a_page_says_that_the_service_is_away_and_that_it_is_back(page: Page, server: WebServer) -> None:
    page.goto("/")
    server.stop()
    try:
        expect(page.get_by_role("status")).to_have_text("The service does not answer: reconnecting…")
        expect(page.locator("td .name").first).to_be_visible()
    finally:
        server.start()
    expect(page.get_by_role("status")).to_have_text("Connected again.")


PATHS = (
    "/",
    "/sweeps/digits-done",
    "/queue",
    "/schedules",
    "/submit",
    "/compare?sweep=digits-done",
    "/sweeps/none-such",
)


@pytest.mark.slow
def test_a_phone_shows_it_without_scrolling_sideways_and_with_room_for_a_finger(
    browser: Browser, server: WebServer
) -> None:
    controls = "main button, main .button, main select, main input:not([type=checkbox]), .pick, nav a"
    with opened_page(browser, base_url=server.url, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        for path in PATHS:
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
            for control in page.locator(controls).all():
                if control.is_visible():
                    box = control.bounding_box()
                    assert box is not None
                    assert box["height"] >= LEAST_TOUCH, (path, control.inner_text())
            if path == "/":
                expect(page.get_by_role("row", name="digits-done").get_by_text("eval/loss")).to_be_visible()
            if path == "/sweeps/digits-done":
                what_a_button_asks_fits(page)


def what_a_button_asks_fits(page: Page) -> None:
    page.get_by_role("button", name="Retrain").tap()
    controls = page.get_by_role("dialog").locator("input:not([type=hidden]), button").all()
    boxes = [box for control in controls if (box := control.bounding_box()) is not None]
    assert len(boxes) == 5
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] for box in boxes)
    assert all(box["width"] > PHONE["width"] / 2 for box in boxes[:3]), "what is typed has room"
