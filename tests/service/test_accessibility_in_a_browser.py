"""Every page of the service in a real browser: axe finds nothing, light and dark, on a desk and on a phone."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import requests
from chromium import WITHIN_MS, opened_page
from fastapi import APIRouter
from fastapi.routing import APIRoute
from searched_sweep import BEST, FAILED, record_searched_sweep
from web_server import WebServer, answering

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from axe_playwright_python.sync_playwright import Axe  # noqa: E402 - after the line that may skip it
from playwright.sync_api import Browser, Page, expect  # noqa: E402
from recording import CONFIG, open_recorder  # noqa: E402

from sweeps.service import web  # noqa: E402
from sweeps.service.auth import tokens  # noqa: E402
from sweeps.service.database.engine import writing  # noqa: E402
from sweeps.service.queue import jobs  # noqa: E402
from sweeps.service.queue.job_requests import Run  # noqa: E402

WIDTHS = (1400, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SWEEP = "/sweeps/searched"
RUNNING = "/sweeps/alive/trials/0000"
PAGES = {
    "/": ["/", "/?status=finished"],
    "/sweeps/{name}": [SWEEP, "/sweeps/alive", "/sweeps/waits", "/sweeps/none-such"],
    "/sweeps/{name}/trials/{trial}": [f"{SWEEP}/trials/{BEST}", f"{SWEEP}/trials/{FAILED}", RUNNING],
    "/sweeps/{name}/figures/{figure}/table": [f"{SWEEP}/figures/curves/table"],
    "/sweeps/{name}/report": [f"{SWEEP}/report"],
    "/compare": ["/compare?sweep=searched&sweep=alive"],
    "/queue": ["/queue"],
    "/audit": ["/audit", "/audit?q=none-such"],
    "/schedules": ["/schedules"],
    "/schedules/{name}": ["/schedules/evening", "/schedules/gone"],
    "/schedules/{name}/edit": ["/schedules/evening/edit"],
    "/new-schedule": ["/new-schedule"],
    "/submit": ["/submit", "/submit?conf=none-such"],
    "/sign-in": ["/sign-in"],
    "/api/docs": ["/api/docs"],
}
"""Addresses to look at, by route."""
PARTS = {
    "/compare/figure",
    "/plotly.js",
    "/schedules/{name}/figure",
    "/submit/complete",
    "/sweeps/{name}/figures/{figure}",
    "/sweeps/{name}/trials/{trial}/logs/{worker}",
}
"""Routes that answer with something else than a page."""
WITH_PREVIEW = ("/submit", "/new-schedule", "/schedules/evening/edit")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A service with a sweep of each kind, a waiting job, and schedules that were edited and removed."""
    folder = tmp_path_factory.mktemp("service")
    uri = f"sqlite:///{folder}/mlflow.db"
    record_searched_sweep(uri, folder / "outputs")
    alive = open_recorder(uri, "alive", folder=folder / "outputs/alive")
    alive.trials.start("0000", {"train.lr": 0.1}, CONFIG, 1)
    alive.trials.log("0000", 1, {"eval/loss": 0.5})
    with answering(folder) as server:
        with writing(server.service.database) as connection:
            jobs.submit(connection, Run(conf="digits"), "waits", user="mira", project="chat", now=time.time())
        schedule = {"name": "evening", "cron": "30 20 * * *", "conf": "digits", "overrides": ["search.num_trials=3"]}
        for method, path, changed in (
            ("POST", "", {}),
            ("PUT", "/evening", {"timezone": "Asia/Tokyo"}),
            ("POST", "", {"name": "gone"}),
            ("DELETE", "/gone", {}),
        ):
            address, body = f"{server.url}/api/v1/schedules{path}", {"schedule": schedule | changed}
            requests.request(method, address, json=body, timeout=WITHIN_MS / 1000).raise_for_status()
        yield server
    alive.close("finished")


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    with opened_page(browser, base_url=server.url) as page:
        yield page


def problems_of(page: Page) -> list[str]:
    """Return what axe finds, and what is wider than the screen, at each width and in each colour scheme."""
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            found.append(f"wider than {width} pixels")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            result = Axe().run(page)
            if result.violations_count:
                found.append(f"{width} {scheme}: {result.generate_report()}")
    return found


def test_every_page_of_the_service_is_looked_at() -> None:
    modules = [importlib.import_module(f"{web.__name__}.{each.name}") for each in pkgutil.iter_modules(web.__path__)]
    routers = [each for module in modules if isinstance(each := getattr(module, "router", None), APIRouter)]
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    shown = {route.path for route in routes if "GET" in route.methods}
    assert shown - PARTS == set(PAGES)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [path for paths in PAGES.values() for path in paths])
def test_axe_finds_nothing_and_no_page_is_wider_than_the_screen(page: Page, path: str) -> None:
    page.goto(path)
    figures = page.locator("[data-figure]")
    for figure in figures.all():
        figure.scroll_into_view_if_needed()
    if figures.count():  # some have nothing to draw yet
        expect(figures.locator(".js-plotly-plot").first).to_be_attached()
    if path in WITH_PREVIEW:
        expect(page.locator("#preview dl")).to_be_visible()
    if path == "/api/docs":
        page.locator("#operations-sweeps-plan_api_v1_plans_post .opblock-summary-control").click()
        page.get_by_role("button", name="Try it out").click()
    assert problems_of(page) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", [SWEEP, "/sweeps/alive", "/sweeps/waits", RUNNING, "/queue", "/schedules/evening"])
def test_axe_finds_nothing_in_what_a_button_asks(page: Page, path: str) -> None:
    page.goto(path)
    buttons = page.locator("button[popovertarget]:not([popovertargetaction])")
    assert buttons.count() > 0
    for button in buttons.all():
        page.set_viewport_size({"width": WIDTHS[0], "height": 900})
        button.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert problems_of(page) == [], button.inner_text()
        page.keyboard.press("Escape")


@pytest.mark.slow
def test_axe_finds_nothing_where_a_person_signs_in(browser: Browser, tmp_path: Path, server: WebServer) -> None:
    with answering(tmp_path) as guarded:
        with writing(guarded.service.database) as connection:
            tokens.create(connection, "mira", "run", time.time())
        with opened_page(browser, base_url=guarded.url) as page:
            page.goto("/queue")
            page.get_by_label("Token").fill("sweeps_" + "x" * 43)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_role("alert")).to_contain_text("not valid")
            assert problems_of(page) == []
