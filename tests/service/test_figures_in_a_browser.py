"""Figures, choices and the pages of trials in a real browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chromium import hasten, opened_page, watched_page
from searched_sweep import BEST, record_searched_sweep
from web_server import WebServer, answering

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")

from playwright.sync_api import Browser, Locator, Page, Route, expect  # noqa: E402 - after the line that may skip it
from recording import CONFIG, open_recorder  # noqa: E402
from waiting import wait_until  # noqa: E402

from sweeps.folders.trial_files import log_name, logs_folder  # noqa: E402
from sweeps.report.figures.best_so_far import best_so_far  # noqa: E402
from sweeps.report.page.document import render  # noqa: E402
from sweeps.report.report_data import ReportData  # noqa: E402
from sweeps.tracking.control_channel import RequestListener  # noqa: E402
from sweeps.tracking.reader import load_sweep  # noqa: E402
from sweeps.tracking.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.timeout(240)

SWEEP = "/sweeps/searched"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("service")
    record_searched_sweep(f"sqlite:///{folder}/mlflow.db", folder / "outputs")
    return folder


@pytest.fixture(scope="module")
def alive(folder: Path) -> Iterator[Recorder]:
    """A sweep that runs, with one trial that runs."""
    recorder = open_recorder(f"sqlite:///{folder}/mlflow.db", "alive", folder=folder / "outputs/alive")
    recorder.trials.start("0000", {"train.lr": 0.1}, CONFIG, 1)
    recorder.trials.log("0000", 1, {"eval/loss": 0.5})
    yield recorder
    recorder.close("finished")


@pytest.fixture(scope="module")
def server(folder: Path, alive: Recorder) -> Iterator[WebServer]:
    with answering(folder) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: WebServer) -> Iterator[Page]:
    """A page on a desk, which waits for its figures."""
    yield from watched_page(browser, server, viewport={"width": 1400, "height": 900})


@pytest.mark.slow
def test_a_report_fits_a_phone_and_follows_the_colour_scheme(browser: Browser, folder: Path, tmp_path: Path) -> None:
    record = load_sweep(f"sqlite:///{folder}/mlflow.db", "searched")
    far = f"sqlite:////{'a_folder_within_another/' * 9}mlflow.db"
    record = replace(record, mlflow=replace(record.mlflow, tracking_uri=far), command=f"run 'data.path={far}'")
    data = ReportData(record=record)
    (tmp_path / "report.html").write_text(render(data, [found for found in (best_so_far(data),) if found is not None]))
    with opened_page(browser, viewport={"width": 390, "height": 900}, color_scheme="dark") as page:
        page.goto((tmp_path / "report.html").as_uri())
        page.get_by_text("How it was made").click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        curve = page.locator(".js-plotly-plot path.js-line").first
        for scheme, background, line in (("dark", "#11151b", "#f4f7fb"), ("light", "#f6f7f9", "#111827")):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            expect(page.locator("body")).to_have_css("background-color", rgb(background))
            expect(curve).to_have_css("stroke", rgb(line))


def rgb(colour: str) -> str:
    return f"rgb{tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))}"


def tick(page: Page, trial: str) -> None:
    page.get_by_role("checkbox", name=f"Compare trial {trial}").check()


def test_figures_are_drawn_under_the_strict_policy_each_kind_can_be_chosen_and_a_point_leads_to_its_trial(
    page: Page,
) -> None:
    page.goto(SWEEP)
    expect(page.get_by_role("img", name="Learning curves").locator("path.js-line").first).to_be_attached()
    figures = page.get_by_role("navigation", name="Figures of the search")
    for label in ("Importance", "Slices", "Timeline", "Parallel coordinates", "Best so far"):
        figures.get_by_role("link", name=label).click()
        expect(figures.locator("[aria-current]")).to_have_text(label)
        expect(page.get_by_role("img", name=label).first.locator(".trace, .bars, .scatterlayer").first).to_be_attached()
    assert page.url.endswith("view=best")
    assert "MathJax" not in page.content()
    plot = page.locator("#figure-view .plot").first
    expect(plot.locator(".points path").first).to_be_attached()
    plot.scroll_into_view_if_needed()
    box = plot.locator(".points path").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url("**/trials/00*")
    expect(page.get_by_role("heading", name="Trial 00")).to_be_visible()


def test_chosen_trials_are_compared_and_what_was_chosen_outlives_sorting_and_reloading(page: Page) -> None:
    page.set_viewport_size({"width": 1400, "height": 3000})  # figures far from the screen wait to be drawn
    page.goto(SWEEP)
    legend = page.locator("#figure-curves .legendtext")
    tick(page, "0002")
    expect(legend.filter(has_text="0002")).to_have_count(1)
    tick(page, BEST)
    expect(legend.filter(has_text=f"{BEST} (best)")).to_have_count(1)
    page.get_by_role("link", name="steps").click()
    expect(page.locator("th[aria-sort]")).to_contain_text("steps")
    page.get_by_label("Metric").select_option("eval/accuracy")
    expect(page.locator("#figure-curves .ytitle")).to_have_text("eval/accuracy")
    page.reload()
    expect(page.get_by_role("checkbox", name="Compare trial 0002")).to_be_checked()
    expect(page.get_by_label("Metric")).to_have_value("eval/accuracy")
    expect(page.locator("th[aria-sort]")).to_contain_text("steps")
    page.get_by_role("link", name="Remove trial 0002").click()
    expect(page.get_by_role("checkbox", name="Compare trial 0002")).not_to_be_checked()
    expect(legend.filter(has_text="0002")).to_have_count(0)
    tick(page, "0002")
    expect(legend.filter(has_text="0002")).to_have_count(1)
    page.get_by_role("link", name="clear").click()
    for trial in ("0002", BEST):
        expect(page.get_by_role("checkbox", name=f"Compare trial {trial}")).not_to_be_checked()
    page.get_by_label("Metric").select_option("train/loss")
    expect(page.locator("#figure-curves .ytitle")).to_have_text("train/loss")
    assert "trial=" not in page.url, "a later choice brings nothing back"


@pytest.mark.slow
def test_a_choice_leaves_the_page_and_its_table_scrolled_where_they_were(page: Page) -> None:
    page.set_viewport_size({"width": 1400, "height": 360})
    held: list[Route] = []
    are_held = True

    def hold(figure: Route) -> None:
        if are_held:
            held.append(figure)
        else:
            figure.continue_()

    page.route("**/figures/**", hold)
    with page.expect_request("**/figures/**"):
        page.goto(SWEEP)
    table = page.locator("#trials-scroll")
    table.scroll_into_view_if_needed()
    table.evaluate("table => (table.scrollTop = 40)")
    before = top(table)
    assert abs(top(table.locator("thead th").first) - before) < 2, "its head stays"
    are_held = False
    for figure in held:
        figure.continue_()
    expect(page.locator(".plot").first).to_be_attached()  # drawn above the table that is looked at
    page.get_by_role("link", name="took").click()
    expect(page.locator("th[aria-sort]")).to_contain_text("took")
    # Not `wait_for_function`: it asks again from within the page, whose policy forbids to evaluate a text there.
    wait_until(lambda: table.evaluate("table => table.scrollTop") == 40)
    wait_until(lambda: abs(top(table) - before) < 3)


def top(element: Locator) -> float:
    """Pixels from the upper edge of the window to that of an element."""
    box = element.bounding_box()
    assert box is not None
    return box["y"]


@pytest.mark.slow
def test_a_running_trials_log_is_followed_unless_the_viewer_scrolls_up_and_its_curve_grows_with_another_axis_chosen(
    page: Page, folder: Path, alive: Recorder
) -> None:
    logs = logs_folder(folder / "outputs/alive", "0000")
    logs.mkdir(parents=True, exist_ok=True)
    file = logs / log_name(0)
    file.write_text("".join(f"line {line}\n" for line in range(100)))
    hasten(page)
    page.goto("/sweeps/alive/trials/0000")
    page.get_by_label("Axis shows").select_option("all")
    expect(page.locator("#figure-curves .points path")).to_have_count(1)
    log = page.get_by_role("group", name="Log")
    expect(log).to_contain_text("line 99")
    with file.open("a") as more:
        more.write("the next line\n")
    expect(log).to_contain_text("the next line")
    assert log.evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight") < 5
    log.evaluate("log => (log.scrollTop = 40)")
    with file.open("a") as more:
        more.write("one more line\n")
    expect(log).to_contain_text("one more line")
    assert log.evaluate("log => log.scrollTop") == 40
    for step in range(2, 6):
        alive.trials.log("0000", step, {"eval/loss": 0.5 / step})
    expect(page.locator("#figure-curves path.js-line").first).to_be_attached()
    expect(page.get_by_label("Axis shows")).to_have_value("all")


def test_stop_asks_first_and_then_tells_what_became_of_it(page: Page, alive: Recorder) -> None:
    told: list[tuple[str, str]] = []

    def handle(request: Mapping[str, Any]) -> str:
        told.append((request["verb"], request["trial"]))
        return "told"

    page.goto("/sweeps/alive/trials/0000")
    dialog = page.get_by_role("dialog", name="Stop trial 0000?")
    with RequestListener(alive.ids, handle):  # as its driver has it
        page.get_by_role("button", name="Stop", exact=True).first.click()
        expect(dialog).to_be_visible()
        assert told == []
        dialog.get_by_role("button", name="Stop").click()
        expect(page.get_by_text("The trial was asked to stop.")).to_be_visible()
        wait_until(lambda: told == [("stop", "0000")], 30)  # the driver looks for requests again and again


def test_without_scripts_the_choices_and_tables_still_work(browser: Browser, server: WebServer) -> None:
    with opened_page(browser, base_url=server.url, java_script_enabled=False) as page:
        page.goto(SWEEP)
        page.get_by_label("Metric").select_option("train/loss")
        page.get_by_role("checkbox", name="Compare trial 0002").check()
        page.get_by_role("button", name="Show").first.click()
        expect(page.get_by_role("checkbox", name="Compare trial 0002")).to_be_checked()
        page.get_by_role("link", name="Learning curves as a table").click()
        expect(page.get_by_text("train/loss by step")).to_be_visible()
        expect(page.get_by_role("row")).to_have_count(1 + 6 + 6 * 10)
