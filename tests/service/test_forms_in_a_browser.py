"""The forms of the service in a real browser: previews while a person types, and completions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import hasten, opened_page, watched_page
from recording import open_recorder
from sqlalchemy import delete
from web_server import WebServer, answering

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from playwright.sync_api import Browser, Page, expect  # noqa: E402 - after the line that may skip it

from sweeps.service.auth import tokens  # noqa: E402
from sweeps.service.database import tables  # noqa: E402
from sweeps.service.database.engine import writing  # noqa: E402

pytestmark = pytest.mark.timeout(240)

EVENING = {"name": "evening", "cron": "30 20 * * *", "conf": "digits", "overrides": ["search.num_trials=3"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    with answering(tmp_path_factory.mktemp("service")) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    """A page on a desk."""
    for page in watched_page(browser, server, ("409",), locale="en-GB", timezone_id="Asia/Tokyo"):
        hasten(page)
        yield page


def test_what_would_run_follows_what_is_typed_and_stays_while_there_is_a_mistake(page: Page) -> None:
    page.goto("/submit")
    shown, state = page.locator("#preview"), page.locator("#preview-state")
    expect(shown.get_by_text("16 trials")).to_be_visible()
    overrides = page.get_by_label("Overrides")
    overrides.fill("search.num_trials=7")
    expect(shown.get_by_text("7 trials")).to_be_visible()
    overrides.fill("search.num_trials=7\ntrain.lrr=1")
    expect(page.locator("#overrides-mistake")).to_contain_text("Line 2: train.lrr")
    expect(overrides).to_have_attribute("aria-invalid", "true")
    expect(state).to_contain_text("It cannot run yet")
    expect(shown.get_by_text("7 trials")).to_be_visible()
    page.get_by_label("search/scheduler").select_option("none")
    overrides.fill("search.num_trials=8")
    expect(shown.get_by_text("8 trials")).to_be_visible()
    expect(shown).to_contain_text("scheduler none")
    expect(overrides).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("Config").select_option("llm_lora")
    expect(page.get_by_label("model", exact=True)).to_contain_text("tiny_llama (the config's)")
    expect(page.get_by_label("search/scheduler")).to_have_value("")


def test_keys_are_completed_by_keyboard(page: Page) -> None:
    page.goto("/submit")
    overrides, completions = page.get_by_label("Overrides"), page.get_by_role("listbox", name="Completions")
    overrides.click()
    page.keyboard.type("seed=1\ntrain.op")
    expect(completions.get_by_role("option")).to_have_count(1)
    expect(completions).to_contain_text("Optimizer of torch")
    page.keyboard.press("ArrowDown")
    chosen = completions.get_by_role("option", selected=True)
    expect(overrides).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
    page.keyboard.press("Enter")
    expect(overrides).to_have_value("seed=1\ntrain.optimizer=")
    expect(completions.get_by_role("option")).to_have_count(6)
    page.keyboard.press("Escape")
    expect(completions).to_be_hidden()
    page.keyboard.type("sgd")
    expect(completions.get_by_role("option")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(overrides).to_have_value("seed=1\ntrain.optimizer=sgd\n")


def test_without_scripts_a_sweep_is_checked_by_its_button(browser: Browser, server: WebServer) -> None:
    with opened_page(browser, base_url=server.url, java_script_enabled=False) as page:
        page.goto("/submit")
        page.get_by_label("search/sampler").select_option("random")
        page.get_by_role("button", name="Check only").click()
        expect(page.locator("#preview")).to_contain_text("sampler random")
        expect(page.get_by_label("search/sampler")).to_have_value("random")


@pytest.mark.slow
def test_a_schedule_is_made_with_a_preview_and_changed_by_two_at_once(page: Page, browser: Browser) -> None:
    page.goto("/new-schedule")
    expect(page.locator("#preview li")).to_have_count(5)
    page.get_by_label("When (cron line)").fill("0 25 * * *")
    expect(page.locator("#cron-mistake")).to_contain_text("its hour must be 0-23")
    page.get_by_label("When (cron line)").fill("30 20 * * *")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_label("Name", exact=True).fill("evening")
    page.get_by_label("Overrides").fill("search.num_trials=3")
    expect(page.locator("#preview")).to_contain_text("3 trials")
    expect(page.locator("#preview li").first).to_contain_text("20:30+0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is saved.")).to_be_visible()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Description").fill("Mine")
    change = {"schedule": EVENING | {"timezone": "Asia/Tokyo"}}
    assert page.request.put("/api/v1/schedules/evening", data=change).ok  # somebody else's
    with page.expect_response(lambda answer: answer.status == 409):
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("was changed by local")
    expect(page.get_by_label("Description")).to_have_value("Mine")
    expect(page.get_by_role("region", name="Differences between this form and the saved schedule")).to_contain_text(
        "Asia/Tokyo"
    )
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("It is saved.")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog", name="Pause evening?").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("It is paused")).to_be_visible()
    page.locator("#version-1").get_by_role("button", name="Bring back").click()
    expect(page.get_by_text("The earlier version is saved again.")).to_be_visible()
    expect(page.locator("#version-5")).to_contain_text("version 1 brought back by local")


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


@pytest.mark.slow
def test_where_tokens_are_demanded_a_person_signs_in_and_tries_the_api_from_its_documentation(
    browser: Browser, tmp_path: Path
) -> None:
    open_recorder(f"sqlite:///{tmp_path}/mlflow.db", "hidden").close("finished")
    with answering(tmp_path) as server, opened_page(browser, base_url=server.url) as page:
        with writing(server.service.database) as connection:
            _, secret = tokens.create(connection, "mira", "run", time.time(), projects=["chat"])
        blocked: list[str] = []
        page.on("console", lambda message: blocked.append(message.text) if "Content Security" in message.text else None)
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
        tries_the_api(page)
        page.goto("/queue")
        page.get_by_role("button", name="Sign out").click()
        page.goto("/")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert blocked == []


@pytest.mark.slow
def test_a_form_outlives_the_session_in_which_it_was_opened(browser: Browser, tmp_path: Path) -> None:
    with answering(tmp_path) as server, opened_page(browser, base_url=server.url) as page:
        with writing(server.service.database) as connection:
            _, secret = tokens.create(connection, "mira", "run", time.time())
        hasten(page)
        signs_in(page, secret)
        page.goto("/submit")
        page.get_by_label("Name").fill("digits-mine")
        state, submit = page.locator("#preview-state"), page.get_by_role("button", name="Submit")
        end_all_sessions(server)
        page.get_by_label("Overrides").fill("search.num_trials=7")
        expect(state).to_contain_text("You are signed out")
        submit.click()
        expect(state).to_contain_text("You are signed out")
        elsewhere = page.context.new_page()
        signs_in(elsewhere, secret)
        page.get_by_label("Overrides").fill("search.num_trials=8")
        expect(page.locator("#preview").get_by_text("8 trials")).to_be_visible()
        end_all_sessions(server)
        signs_in(elsewhere, secret)
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.method) if request.is_navigation_request() else None)
        submit.evaluate("button => { button.click(); setTimeout(() => button.click(), 30); }")
        expect(page.get_by_role("heading", name="digits-mine")).to_be_visible()
        assert sent.count("POST") == 1


def signs_in(page: Page, secret: str) -> None:
    page.goto("/queue")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Queue", exact=True)).to_be_visible()


def end_all_sessions(server: WebServer) -> None:
    """As the hours of a session do that ends overnight."""
    with writing(server.service.database) as connection:
        connection.execute(delete(tables.sessions))


def tries_the_api(page: Page) -> None:
    """A request from the API's documentation, which needs the session and the CSRF token of the page."""
    page.goto("/api/docs")
    operation = page.locator("#operations-schedules-check_api_v1_schedules_check_post")
    operation.locator(".opblock-summary-control").click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table")).to_contain_text("evening")
    expect(operation.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    assert page.request.post("/api/v1/schedules/check", data={}).status == 403  # without the page's CSRF token
