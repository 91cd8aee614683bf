"""The service's pages as they are answered: for whom, from what, and in what shape."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from scheduled import defined
from serving import Api
from waiting import wait_until

from sweeps.errors import TrackingUnreachable
from sweeps.report.report_folder import report_folder
from sweeps.service import record_cache
from sweeps.service.auth.permissions import LOCAL
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Run
from sweeps.service.web.schedules import _facts
from sweeps.tracking.mlflow_pages import trials_page

PATHS = (
    "/",
    "/queue",
    "/schedules",
    "/schedules/nightly",
    "/submit",
    "/sweeps/mine",
    "/sweeps/mine/trials/0",
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


@pytest.fixture
def new_service(tmp_path: Path) -> Iterator[Callable[..., Api]]:
    """Makes a service of a store, with more of its config."""
    made: list[Api] = []

    def make(uri: str, *tokens: str) -> Api:
        made.append(Api(uri, f"database=sqlite:///{tmp_path}/{len(made)}.db", *tokens))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_sound_markup_that_a_strict_policy_allows(client: TestClient, path: str) -> None:
    answer = client.get(path)
    page = Markup(answer.text)
    assert len(set(page.ids)) == len(page.ids)
    assert all(str(script.get("src")).startswith("/static/") for script in page.scripts)
    assert page.scripts
    assert page.styled == []
    assert all(control.get("id") in page.labels for control in page.controls)


def test_the_first_page_of_all_tells_what_to_type(uri: str, new_service: Callable[..., Api]) -> None:
    client = new_service(uri).client()
    assert "python -m sweeps run conf=digits" in client.get("/").text
    assert "python -m sweeps run conf=digits --server" in client.get("/queue").text


def test_behind_a_proxy_with_tls_addresses_lead_to_the_proxy(uri: str, new_service: Callable[..., Api]) -> None:
    """A command that names the service by http would send its user's token unencrypted."""
    service = new_service(uri, "public_url=https://sweeps.example.org/")
    client = service.client(service.token("mira", "run"), follow_redirects=False)
    passed_on = {"Host": "sweeps.example.org"}
    assert "--server https://sweeps.example.org<" in client.get("/queue", headers=passed_on).text
    moved = client.get("/schedules/", headers=passed_on)
    assert moved.headers["location"] == "https://sweeps.example.org/schedules"
    assert "--server http://127.0.0.1:8642" in client.get("/queue").text, "on this machine there is no TLS"


def test_rows_of_names_that_look_alike_have_ids_of_their_own(api: Api, client: TestClient) -> None:
    for name in ("alike.1", "alike_1"):
        api.submit(name)
    api.app.state.pages.changed()
    for path, kind in (("/", "row"), ("/queue", "job")):
        ids = Markup(client.get(path).text).ids
        assert [each for each in ids if "alike" in each] == [f"{kind}-alike.1", f"{kind}-alike_1"]


def test_an_unknown_sweep_is_answered_with_the_nearest_names(client: TestClient) -> None:
    answer = client.get("/sweeps/mime")
    assert answer.status_code == 404
    assert 'href="/sweeps/mine"' in answer.text


def test_who_may_only_look_gets_no_buttons_can_press_none_and_signs_in(
    uri: str, new_service: Callable[..., Api]
) -> None:
    guarded = new_service(uri)
    job = guarded.submit("hers", "mira")
    reader, runner = (guarded.client(guarded.token("mira", role), follow_redirects=False) for role in ("read", "run"))
    assert "/cancel" in runner.get("/sweeps/hers").text
    assert "/cancel" not in reader.get("/sweeps/hers").text
    assert reader.post(f"/jobs/{job.id}/cancel").status_code == 403
    assert runner.post(f"/jobs/{job.id}/cancel").status_code == 303
    nobody = guarded.client(follow_redirects=False)
    answer = nobody.get("/sweeps/x?sort=steps&part=live")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Fsweeps%2Fx%3Fsort%3Dsteps"
    assert "evil" not in nobody.get("/sign-in?next=//evil.example/x").text


def test_what_people_type_cannot_become_markup(client: TestClient) -> None:
    for path in (f"/?q={HOSTILE}&state={HOSTILE}", f"/sweeps/mine?sort={HOSTILE}", f"/sweeps/{HOSTILE}"):
        assert HOSTILE not in client.get(path).text
    form = client.post("/submit", data={"conf": "digits", "overrides": HOSTILE, "name": HOSTILE, "priority": HOSTILE})
    assert form.status_code == 422
    assert HOSTILE not in form.text
    assert "&lt;script&gt;" in form.text


def test_the_live_part_comes_alone_and_only_when_it_has_changed(client: TestClient) -> None:
    whole, part = client.get("/sweeps/mine"), client.get("/sweeps/mine?part=live")
    assert part.text.lstrip().startswith("<div data-live")
    assert part.text.strip() in whole.text
    again = client.get("/sweeps/mine?part=live", headers={"If-None-Match": part.headers["etag"]})
    assert again.status_code == 304


def away(*_: object) -> None:
    raise TrackingUnreachable("MLflow does not answer at https://mlflow.example")


def test_a_store_that_is_away_leaves_the_last_that_was_seen_with_its_age(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "made-by-hand" in client.get("/").text
    assert client.get("/sweeps/made-by-hand").status_code == 200
    monkeypatch.setattr(record_cache, "FRESH_S", 0.0)
    monkeypatch.setattr(record_cache, "STALE_S", 0.0)
    monkeypatch.setattr(record_cache, "list_sweeps", away)
    wait_until(lambda: "MLflow does not answer" in client.get("/").text)
    text = client.get("/").text
    assert "made-by-hand" in text
    assert "The data shown is from" in text


def test_a_store_that_was_never_seen_is_said_to_be_away(
    api: Api, new_service: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_cache, "list_sweeps", away)
    answer = new_service(api.uri).client().get("/")
    assert answer.status_code == 503
    assert "MLflow does not answer" in answer.text


def test_trials_sort_their_order_is_said_and_a_failed_one_says_why(client: TestClient) -> None:
    text = client.get("/sweeps/mine?sort=metric0&down=1").text
    assert 'aria-sort="descending"' in text
    places = [text.index(f'id="trial-{trial}"') for trial in ("3", "2", "1", "0")]
    assert places == sorted(places)
    assert "ValueError: no" in text


def test_the_config_of_a_trial_names_the_file_that_the_browser_saves(client: TestClient) -> None:
    text = client.get("/sweeps/mine/trials/0").text
    ((address, file),) = re.findall(r'href="([^"]+)" download="([^"]+)"', text)
    assert f"python -m sweeps run conf={file}\n" in client.get(html.unescape(address)).text


def test_links_lead_to_the_right_run(api: Api, new_service: Callable[..., Api]) -> None:
    linked = new_service(api.uri, "mlflow_url=https://mlflow.example/", "ray_dashboard_url=http://ray.example:8265")
    text = linked.client().get("/sweeps/mine").text
    record = linked.service.records.sweep(LOCAL, "mine")
    runs = f"https://mlflow.example/#/experiments/{record.mlflow.experiment_id}/runs"
    page = trials_page(record.mlflow.experiment_id, "mine", record.metrics[0], record.modes[0])
    assert f'href="{html.escape(f"https://mlflow.example/{page}")}"' in text
    assert all(f"{runs}/{trial.run_id}" in text for trial in record.trials)


def test_what_was_done_is_told_once(client: TestClient) -> None:
    text = client.get("/sweeps/mine?done=extend&sort=steps").text
    assert '<p class="note good" role="status">It was extended.</p>' in text
    assert "done=" not in text
    assert 'class="note' not in client.get("/sweeps/mine?done=%3Cb%3E").text


def test_a_sweep_without_a_report_offers_to_make_it_and_then_shows_it_in_a_sandbox(
    api: Api, client: TestClient
) -> None:
    assert "Make the report" in client.get("/sweeps/mine/report").text
    folder = report_folder(api.service.records.sweep(LOCAL, "mine"))
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("<h1>Report</h1>")
    answer = client.get("/sweeps/mine/report")
    assert answer.text == "<h1>Report</h1>"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_a_schedule_fires_once_more_at_the_press_of_a_button_and_only_that_counts_as_by_hand(
    api: Api, client: TestClient
) -> None:
    assert "nightly" in client.get("/schedules").text
    answer = client.post("/schedules/nightly/run")
    assert answer.status_code == 303
    with api.service.database.connect() as connection:
        (job,) = (each for each in jobs.query(connection) if each.schedule == "nightly")
    assert job.sweep in client.get("/schedules/nightly").text
    with writing(api.service.database) as connection:  # a firing of the cron line that is not recorded any more
        jobs.submit(
            connection, Run(conf="digits"), "of-1970", user="ada", project="ada", now=2.0, schedule="nightly", due=1.0
        )
    page = client.get("/schedules/nightly").text
    assert ("of-1970" in page, page.count("by hand")) == (True, 1)
    assert client.post("/schedules/none-such/run").status_code == 404


def test_the_page_of_a_schedule_names_everything_that_is_set() -> None:
    assert not {"nights", "priority", "random delay"} & {fact.label for fact in _facts(defined())}
    facts = {fact.label: fact.text for fact in _facts(defined(nights={}, priority=2, jitter_s=90))}
    assert facts["nights"] == "warm start from up to 3 earlier nights"
    assert (facts["priority"], facts["random delay"]) == ("2", "up to 1m 30s")


def test_the_list_says_a_mistake_in_the_address(client: TestClient) -> None:
    answer = client.get("/?page=0")
    assert answer.status_code == 422
    assert "page" in answer.text
    for change in ("cancel", "priority"):  # no database has a number of so many digits
        assert client.post(f"/jobs/{10**20}/{change}", data={"priority": "1"}).status_code == 422
