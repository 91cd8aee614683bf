"""The forms of the service in a real browser: previews while a person types, completions, and accessibility."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from web_server import WebServer, close, new_service

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402 - after the line that may skip it

pytestmark = pytest.mark.timeout(240)

WITHIN_MS = 20_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install -y chromium")
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[WebServer]:
    folder = tmp_path_factory.mktemp("service")
    shutil.copy(empty_database, folder / "mlflow.db")
    patch = pytest.MonkeyPatch()
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    server = WebServer(new_service(folder))
    yield server
    server.stop()
    close(server.service)
    patch.undo()


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    """A page on a desk; nothing it does may end in an error on the console."""
    context = browser.new_context(base_url=server.url, locale="en-GB", timezone_id="Asia/Tokyo")
    page = context.new_page()
    page.set_default_timeout(WITHIN_MS)
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def test_what_would_run_follows_what_is_typed_and_stays_while_there_is_a_mistake(page: Page) -> None:
    page.goto("/submit")
    shown, state = page.locator("#preview"), page.locator("#preview-state")
    expect(shown.get_by_text("16 trials")).to_be_visible(timeout=WITHIN_MS)
    overrides = page.get_by_label("Overrides")
    overrides.fill("search.num_trials=7")
    expect(shown.get_by_text("7 trials")).to_be_visible(timeout=WITHIN_MS)
    overrides.fill("search.num_trials=7\ntrain.lrr=1")
    expect(page.locator("#overrides-mistake")).to_contain_text("Line 2: train.lrr", timeout=WITHIN_MS)
    expect(overrides).to_have_attribute("aria-invalid", "true")
    expect(state).to_contain_text("It cannot run yet")
    expect(shown.get_by_text("7 trials")).to_be_visible()
    page.get_by_label("search/scheduler").select_option("none")
    overrides.fill("search.num_trials=8")
    expect(shown.get_by_text("8 trials")).to_be_visible(timeout=WITHIN_MS)
    expect(shown).to_contain_text("scheduler none")
    expect(overrides).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("Config").select_option("llm_lora")
    expect(page.get_by_label("model", exact=True)).to_contain_text("tiny_llama (the config's)", timeout=WITHIN_MS)
    expect(page.get_by_label("search/scheduler")).to_have_value("")


def test_keys_are_completed_by_keyboard(page: Page) -> None:
    page.goto("/submit")
    overrides, completions = page.get_by_label("Overrides"), page.get_by_role("listbox", name="Completions")
    overrides.click()
    page.keyboard.type("seed=1\ntrain.op")
    expect(completions.get_by_role("option")).to_have_count(1, timeout=WITHIN_MS)
    expect(completions).to_contain_text("Optimizer of torch")
    page.keyboard.press("ArrowDown")
    chosen = completions.get_by_role("option", selected=True)
    expect(overrides).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
    page.keyboard.press("Enter")
    expect(overrides).to_have_value("seed=1\ntrain.optimizer=")
    expect(completions.get_by_role("option")).to_have_count(3, timeout=WITHIN_MS)
    page.keyboard.press("Escape")
    expect(completions).to_be_hidden()
    page.keyboard.type("sgd")
    expect(completions.get_by_role("option")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(overrides).to_have_value("seed=1\ntrain.optimizer=sgd\n")


def test_without_scripts_a_sweep_is_checked_by_its_button(browser: Browser, server: WebServer) -> None:
    context = browser.new_context(base_url=server.url, java_script_enabled=False)
    page = context.new_page()
    page.goto("/submit")
    page.get_by_label("search/sampler").select_option("random")
    page.get_by_role("button", name="Check only").click()
    expect(page.locator("#preview")).to_contain_text("sampler random", timeout=WITHIN_MS)
    expect(page.get_by_label("search/sampler")).to_have_value("random")
    context.close()
