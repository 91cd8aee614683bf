"""The service's pages in a real browser: what is live, what can be pressed, on a desk and on a phone."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import watched_page
from recording import CONFIG, open_recorder, record_small_sweep
from sqlalchemy import update
from web_server import WebServer, answering

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from playwright.sync_api import Browser, Page, expect  # noqa: E402 - after the line that may skip it

from sweeps.constants import TAG_DASHBOARD  # noqa: E402
from sweeps.service.auth import tokens  # noqa: E402
from sweeps.service.database.engine import writing  # noqa: E402
from sweeps.service.database.tables import jobs as jobs_table  # noqa: E402
from sweeps.service.queue import jobs  # noqa: E402
from sweeps.service.queue.job_requests import Run  # noqa: E402
from sweeps.tracking.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.timeout(240)

WITHIN_MS = 60_000
"""Until what is live has come; the page looks every two seconds."""
PHONE = {"width": 390, "height": 844}
LEAST_TOUCH = 44
"""Pixels that a finger needs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Recorder]:
    """A sweep that runs, beside one that has ended."""
    here = Path.cwd()
    os.chdir(folder)
    record_small_sweep(f"sqlite:///{folder}/mlflow.db", "digits-done")
    config = "search:\n  num_trials: 9\ntrain:\n  lr: 0.01\n"
    recorder = open_recorder(f"sqlite:///{folder}/mlflow.db", "digits-alive", config=config)
    os.chdir(here)
    yield recorder
    recorder.close("finished")


@pytest.fixture(autouse=True)
def _store_of_sweeps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `serve` has it: sweeps are recorded where the service looks."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")


@pytest.fixture(scope="module")
def server(folder: Path, running: Recorder) -> Iterator[WebServer]:
    with answering(folder) as server:
        engine = server.service.database
        with writing(engine) as connection:
            alive = jobs.submit(
                connection,
                Run(conf="digits", name="digits-alive"),
                "digits-alive",
                user="mira",
                project="chat",
                now=1.0,
            )
            connection.execute(
                update(jobs_table).where(jobs_table.c.id == alive.id).values(state="running", started=2.0)
            )
            jobs.submit(connection, Run(conf="digits"), "digits-next", user="mira", project="chat", now=time.time())
        yield server


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    """A page on a desk."""
    expected = ("ERR_CONNECTION_REFUSED", "422")
    yield from watched_page(browser, server, WITHIN_MS, expected, locale="en-GB", timezone_id="Asia/Tokyo")


def test_the_list_shows_what_runs_what_waits_and_what_has_ended(page: Page) -> None:
    page.goto("/")
    names = page.locator("td .name")
    expect(names).to_have_text(["digits-alive", "digits-next", "digits-done"])
    page.get_by_role("link", name="Finished 1").click()
    expect(names).to_have_text(["digits-done"])
    page.get_by_role("searchbox").fill("nothing like it")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("No sweep matches.")).to_be_visible()


def test_times_are_in_the_viewers_zone_with_utc_beside_the_pointer(page: Page) -> None:
    page.goto("/")
    shown = page.locator("#row-digits-done time")
    utc, local = shown.get_attribute("title"), shown.inner_text()
    assert utc is not None
    assert utc.endswith("UTC")
    assert (int(utc[11:13]) + 9) % 24 == int(re.findall(r"(\d\d):", local)[0])


def test_a_running_sweep_is_live(page: Page, running: Recorder) -> None:
    page.goto("/sweeps/digits-alive")
    expect(page.get_by_text("No trial has started yet.")).to_be_visible()
    page.get_by_role("link", name="Report").focus()
    running.trials.start("0", {"train.lr": 0.1}, CONFIG, 1)
    for step in (10, 20):
        running.trials.log("0", step, {"eval/loss": 1 / step})
    expect(page.locator("#trial-0")).to_contain_text("running", timeout=WITHIN_MS)
    expect(page.locator("#figure-curves path.js-line").first).to_be_attached()
    expect(page.get_by_role("link", name="Report")).to_be_focused()
    running.trials.end("0", "finished", 20, 1)
    counts = {"finished": 1, "running": 0}
    running.update(counts, [("0", (0.05,), {"train.lr": 0.1})], {"wall_s": 3.0, "train_s": 2.0, "goodput": 0.7})
    expect(page.locator(".tile").first).to_contain_text("0.05", timeout=WITHIN_MS)
    expect(page.get_by_text("1 of 9 trials")).to_be_visible()


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
    page.wait_for_timeout(2500)  # the page has looked again meanwhile, and must not have closed it
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert asked() is None
    stop.first.click()
    dialog.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("It was asked to stop.")).to_be_visible()
    assert asked() is not None


def test_a_sweep_is_submitted_and_taken_out_of_the_queue_again(page: Page) -> None:
    page.goto("/submit")
    page.get_by_label("Overrides").fill("search.num_trials=3")
    page.get_by_label("Name").fill("digits-mine")
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", name="digits-mine")).to_be_visible()
    expect(page.get_by_text("It is in the queue.")).to_be_visible()
    page.goto("/queue")
    row = page.locator("#job-digits-mine")
    row.get_by_role("button", name="Sooner").click()
    expect(page.locator("section[aria-labelledby=Waiting] td .name").first).to_have_text("digits-mine")
    row.get_by_role("button", name="Cancel").first.click()
    page.get_by_role("dialog").filter(visible=True).get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("It was removed from the queue.")).to_be_visible()
    expect(row).to_have_count(0)


def test_the_link_to_rays_dashboard_leads_to_it(page: Page, running: Recorder, server: WebServer) -> None:
    page.goto("/sweeps/digits-alive")
    link = page.get_by_role("link", name="Ray dashboard")
    expect(link).to_have_count(0)
    running.attach({}, {TAG_DASHBOARD: f"{server.url}/api/v1/health"})  # a server that answers, in place of Ray's
    expect(link).to_be_visible(timeout=WITHIN_MS)
    with page.expect_popup() as opened:
        link.click()
    expect(opened.value.get_by_text("ok")).to_be_visible()
    assert opened.value.url == f"{server.url}/api/v1/health"


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


def test_a_page_says_that_the_service_is_away_and_that_it_is_back(page: Page, server: WebServer) -> None:
    page.goto("/")
    server.stop()
    try:
        expect(page.get_by_role("status")).to_have_text("The service does not answer: reconnecting…", timeout=WITHIN_MS)
        expect(page.locator("td .name").first).to_be_visible()
    finally:
        server.start()
    expect(page.get_by_role("status")).to_have_text("Connected again.", timeout=WITHIN_MS)


@pytest.mark.parametrize(
    "path",
    ["/", "/sweeps/digits-done", "/queue", "/schedules", "/submit", "/compare?sweep=digits-done", "/sweeps/none-such"],
)
def test_a_phone_shows_it_without_scrolling_sideways_and_with_room_for_a_finger(
    browser: Browser, server: WebServer, path: str
) -> None:
    context = browser.new_context(base_url=server.url, viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for control in page.locator(
        "main button, main .button, main select, main input:not([type=checkbox]), .pick, nav a"
    ).all():
        if control.is_visible():
            box = control.bounding_box()
            assert box is not None
            assert box["height"] >= LEAST_TOUCH, control.inner_text()
    context.close()


def test_the_list_names_the_metric_on_a_phone(browser: Browser, server: WebServer) -> None:
    context = browser.new_context(base_url=server.url, viewport=PHONE)
    page = context.new_page()
    page.goto("/")
    expect(page.get_by_role("row", name="digits-done").get_by_text("eval/loss")).to_be_visible()
    context.close()


def test_what_a_button_asks_fits_on_a_phone(browser: Browser, server: WebServer) -> None:
    context = browser.new_context(base_url=server.url, viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto("/sweeps/digits-done")
    page.get_by_role("button", name="Retrain").tap()
    controls = page.get_by_role("dialog").locator("input:not([type=hidden]), button").all()
    boxes = [box for control in controls if (box := control.bounding_box()) is not None]
    assert len(boxes) == 5
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] for box in boxes)
    assert all(box["width"] > PHONE["width"] / 2 for box in boxes[:3]), "what is typed has room"
    context.close()


def test_where_tokens_are_demanded_a_person_signs_in(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    open_recorder(f"sqlite:///{tmp_path}/mlflow.db", "hidden").close("finished")
    with answering(tmp_path) as server:
        with writing(server.service.database) as connection:
            _, secret = tokens.create(connection, "mira", "run", time.time(), projects=["chat"])
        page = browser.new_context(base_url=server.url).new_page()
        page.goto("/queue")
        page.get_by_label("Token").fill("sweeps_" + "x" * 43)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Queue", exact=True)).to_be_visible()
        page.goto("/sweeps/hidden")
        expect(page.get_by_role("heading", name="No such sweep")).to_be_visible()
        page.goto("/submit")
        page.get_by_label("Name").fill("digits-mine")
        page.get_by_role("button", name="Submit").click()
        expect(page.get_by_role("heading", name="digits-mine")).to_be_visible()
        assert page.context.cookies()[0]["httpOnly"]
        assert page.context.cookies()[0]["sameSite"] == "Strict"
        page.get_by_role("button", name="Sign out").click()
        page.goto("/")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.context.close()
