"""The service's pages as they are answered: for whom, from what, and in what shape."""

from __future__ import annotations

import contextlib
import html
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from recording import record_small_sweep
from request_loop import client_of_app
from waiting import wait_until
from web_server import close, new_service

from sweeps.errors import TrackingUnreachable
from sweeps.service import record_cache
from sweeps.service.api.app import make_app
from sweeps.service.app_context import AppContext
from sweeps.service.auth import tokens
from sweeps.service.auth.permissions import LOCAL
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Run
from sweeps.service.web import pages
from sweeps.tracking.mlflow_pages import trials_page

PATHS = (
    "/",
    "/queue",
    "/schedules",
    "/schedules/nightly",
    "/submit",
    "/sweeps/digits-1",
    "/sweeps/digits-1/trials/0",
    "/sweeps/x",
)
HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "link", "input", "img", "br", "wbr", "rect", "line", "circle", "path"}


class Markup(HTMLParser):
    """Reads a page; every element must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.styled: list[str] = []
        self.labels: set[str] = set()
        self.controls: list[dict[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [str(named["id"])] if "id" in named else []
        self.scripts += [named] if tag == "script" else []
        self.styled += [tag] if "style" in named or any(name.startswith("on") for name in named) else []
        self.labels |= {str(named["for"])} if tag == "label" else set()
        self.controls += [named] if tag in {"input", "select", "textarea"} and named.get("type") != "hidden" else []
        self._open += [] if tag in VOID else [tag]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a store that has a sweep."""
    folder = tmp_path_factory.mktemp("service")
    with contextlib.chdir(folder):
        record_small_sweep(f"sqlite:///{folder}/mlflow.db", "digits-1")
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[AppContext]:
    """Service without tokens: everybody may do everything."""
    service = new_service(folder)
    yield service
    close(service)


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[AppContext]:
    """With tokens."""
    service = new_service(folder, database=f"sqlite:///{folder}/guarded.db")
    token_of(service, "root", "admin")
    yield service
    close(service)


def client_of(service: AppContext) -> TestClient:
    return client_of_app(make_app(service), base_url="http://127.0.0.1:8642", follow_redirects=False)


@pytest.fixture(scope="module")
def client(service: AppContext) -> TestClient:
    return client_of(service)


@pytest.fixture(scope="module")
def guarded_client(guarded: AppContext) -> TestClient:
    return client_of(guarded)


def submit(service: AppContext, sweep: str, user: str = "mira", project: str = "chat", **more: object) -> jobs.Job:
    with writing(service.database) as connection:
        asked = Run(conf="digits", name=sweep)
        return jobs.submit(connection, asked, sweep, user=user, project=project, now=time.time(), **more)  # type: ignore[arg-type]


def token_of(service: AppContext, user: str, role: str) -> dict[str, str]:
    with writing(service.database) as connection:
        return {"Authorization": f"Bearer {tokens.create(connection, user, role, time.time())[1]}"}


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_sound_markup_that_a_strict_policy_allows(client: TestClient, path: str) -> None:
    answer = client.get(path)
    page = Markup(answer.text)
    assert len(set(page.ids)) == len(page.ids)
    assert all(str(script.get("src")).startswith("/static/") for script in page.scripts)
    assert page.scripts
    assert page.styled == []
    assert all(control.get("id") in page.labels for control in page.controls)


def test_the_first_page_of_all_tells_what_to_type(tmp_path: Path) -> None:
    service = new_service(tmp_path)
    client = client_of(service)
    assert "python -m sweeps run conf=digits" in client.get("/").text
    assert "python -m sweeps run conf=digits --server" in client.get("/queue").text
    close(service)


def test_rows_of_names_that_look_alike_have_ids_of_their_own(service: AppContext, client: TestClient) -> None:
    for name in ("alike.1", "alike_1"):
        submit(service, name)
    for path, kind in (("/", "row"), ("/queue", "job")):
        ids = Markup(client.get(path).text).ids
        assert [each for each in ids if "alike" in each] == [f"{kind}-alike.1", f"{kind}-alike_1"]


def test_an_unknown_sweep_is_answered_with_the_nearest_names(client: TestClient) -> None:
    answer = client.get("/sweeps/digit-1")
    assert answer.status_code == 404
    assert 'href="/sweeps/digits-1"' in answer.text


def test_who_may_only_look_gets_no_buttons_and_can_press_none(guarded: AppContext, guarded_client: TestClient) -> None:
    job = submit(guarded, "hers-2")
    reader, runner = token_of(guarded, "mira", "read"), token_of(guarded, "mira", "run")
    time.sleep(pages.FRESH_S)
    assert "/cancel" in guarded_client.get("/sweeps/hers-2", headers=runner).text
    assert "/cancel" not in guarded_client.get("/sweeps/hers-2", headers=reader).text
    assert guarded_client.post(f"/jobs/{job.id}/cancel", headers=reader).status_code == 403
    assert guarded_client.post(f"/jobs/{job.id}/cancel", headers=runner).status_code == 303


def test_who_is_not_signed_in_is_led_to_sign_in_and_back(guarded_client: TestClient) -> None:
    answer = guarded_client.get("/sweeps/x?sort=steps&part=live")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Fsweeps%2Fx%3Fsort%3Dsteps"
    assert "evil" not in guarded_client.get("/sign-in?next=//evil.example/x").text


def test_what_people_type_cannot_become_markup(client: TestClient) -> None:
    for path in (f"/?q={HOSTILE}&state={HOSTILE}", f"/sweeps/digits-1?sort={HOSTILE}", f"/sweeps/{HOSTILE}"):
        assert HOSTILE not in client.get(path).text
    form = client.post("/submit", data={"conf": "digits", "overrides": HOSTILE, "name": HOSTILE, "priority": HOSTILE})
    assert form.status_code == 422
    assert HOSTILE not in form.text
    assert "&lt;script&gt;" in form.text


def test_the_live_part_comes_alone_and_only_when_it_has_changed(client: TestClient) -> None:
    whole, part = client.get("/sweeps/digits-1"), client.get("/sweeps/digits-1?part=live")
    assert part.text.lstrip().startswith("<div data-live")
    assert part.text.strip() in whole.text
    again = client.get("/sweeps/digits-1?part=live", headers={"If-None-Match": part.headers["etag"]})
    assert again.status_code == 304


def test_a_store_that_is_away_leaves_the_last_that_was_seen_with_its_age(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "digits-1" in client.get("/").text
    assert client.get("/sweeps/digits-1").status_code == 200

    def away(*_: object) -> None:
        raise TrackingUnreachable("MLflow does not answer at https://mlflow.example")

    monkeypatch.setattr(record_cache, "FRESH_S", 0.0)
    monkeypatch.setattr(record_cache, "STALE_S", 0.0)
    monkeypatch.setattr(record_cache, "list_sweeps", away)
    wait_until(lambda: "MLflow does not answer" in client.get("/").text)
    text = client.get("/").text
    assert "digits-1" in text
    assert "The data shown is from" in text


def test_a_store_that_was_never_seen_is_said_to_be_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise TrackingUnreachable("MLflow does not answer at https://mlflow.example")

    monkeypatch.setattr(record_cache, "list_sweeps", away)
    service = new_service(folder)
    answer = client_of(service).get("/")
    assert answer.status_code == 503
    assert "MLflow does not answer" in answer.text
    close(service)


def test_trials_sort_and_their_order_is_said(client: TestClient) -> None:
    text = client.get("/sweeps/digits-1?sort=metric0&down=1").text
    assert 'aria-sort="descending"' in text
    places = [text.index(f'id="trial-{trial}"') for trial in ("3", "2", "1", "0")]
    assert places == sorted(places)


def test_a_failed_trial_says_why(client: TestClient) -> None:
    assert "ValueError: no" in client.get("/sweeps/digits-1").text


def test_links_lead_to_the_right_run(folder: Path) -> None:
    service = new_service(folder, mlflow_url="https://mlflow.example/", ray_dashboard_url="http://ray.example:8265")
    text = client_of(service).get("/sweeps/digits-1").text
    record = service.records.sweep(LOCAL, "digits-1")
    runs = f"https://mlflow.example/#/experiments/{record.mlflow.experiment_id}/runs"
    page = trials_page(record.mlflow.experiment_id, "digits-1", record.metrics[0], record.modes[0])
    assert f'href="{html.escape(f"https://mlflow.example/{page}")}"' in text
    assert all(f"{runs}/{trial.run_id}" in text for trial in record.trials)
    close(service)


def test_what_was_done_is_told_once(client: TestClient) -> None:
    text = client.get("/sweeps/digits-1?done=extend&sort=steps").text
    assert "It was extended." in text
    assert "done=" not in text
    assert 'class="note' not in client.get("/sweeps/digits-1?done=%3Cb%3E").text


def test_a_sweep_without_a_report_offers_to_make_it_and_then_shows_it_in_a_sandbox(
    client: TestClient, folder: Path
) -> None:
    assert "Make the report" in client.get("/sweeps/digits-1/report").text
    (folder / "outputs/digits-1/report").mkdir(parents=True)
    (folder / "outputs/digits-1/report/report.html").write_text("<h1>Report</h1>")
    answer = client.get("/sweeps/digits-1/report")
    assert answer.text == "<h1>Report</h1>"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_schedule_fires_once_more_at_the_press_of_a_button(service: AppContext, client: TestClient) -> None:
    assert "nightly" in client.get("/schedules").text
    answer = client.post("/schedules/nightly/run")
    assert answer.status_code == 303
    with service.database.connect() as connection:
        (job,) = (each for each in jobs.query(connection) if each.schedule == "nightly")
    assert job.sweep in client.get("/schedules/nightly").text
    assert client.post("/schedules/none-such/run").status_code == 404


def test_the_list_says_a_mistake_in_the_address(client: TestClient) -> None:
    answer = client.get("/?page=0")
    assert answer.status_code == 422
    assert "page" in answer.text
