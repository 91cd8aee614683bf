"""Pages of trials and their figures as they are answered; in a browser: test_figures_in_a_browser.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from records import sweep_record, trial_record
from request_loop import client_of_app
from searched_sweep import BEST, CUT_OFF, FAILED, RETRIED, TRIALS, record_searched_sweep
from web_server import close, new_service

from sweeps.service.api.app import make_app
from sweeps.service.app_context import AppContext
from sweeps.service.web.figures import FIGURES
from sweeps.service.web.trial_page import attempts
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepTime
from sweeps.tracking.trial_history import Span, spans_as_json
from sweeps.tracking.values import read_list

PAGE = "/sweeps/searched/trials/"
BOTH = "?sweep=searched&sweep=other"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppContext]:
    folder = tmp_path_factory.mktemp("service")
    record_searched_sweep(f"sqlite:///{folder}/mlflow.db", folder / "outputs")
    record_searched_sweep(f"sqlite:///{folder}/mlflow.db", folder / "outputs", "other", status="finished")
    service = new_service(folder, mlflow_url="https://mlflow.example")
    yield service
    close(service)


@pytest.fixture(scope="module")
def client(service: AppContext) -> TestClient:
    return client_of_app(make_app(service), base_url="http://127.0.0.1:8642", follow_redirects=False)


def figure(client: TestClient, name: str, query: str = "") -> Any:
    answer = client.get(f"/sweeps/searched/figures/{name}?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_trial_shows_its_place_among_the_others_and_in_its_ranges(client: TestClient) -> None:
    text = client.get(f"{PAGE}{BEST}").text
    assert ">best<" in text
    assert f"1 of {TRIALS}" in text
    assert "0.0001 to 1, logarithmic" in text
    assert 'aria-label="50% of the way from 0.0001 to 1"' in text
    assert "one of adamw; sgd" in text
    assert text.count("searched</span>") == 2, "momentum does not exist with adamw"


def test_the_number_of_a_trial_needs_no_zeros_and_an_unknown_one_is_told(client: TestClient) -> None:
    assert "Trial 0006" in client.get(f"{PAGE}6").text
    assert re.search(r"Trial 0001<.*after 1 step[,<]", client.get(f"{PAGE}1").text, re.DOTALL)
    missing = client.get(f"{PAGE}77")
    assert missing.status_code == 404
    assert "0000 to 0011" in missing.text


def test_each_attempt_says_why_it_ended(client: TestClient) -> None:
    retried = client.get(f"{PAGE}{RETRIED}").text
    rows = re.findall(r"<tr><td>(\d)</td><td><span class=\"state (\w+)\">.*?<td class=\"wrap\">(.*?)</td>", retried)
    assert rows == [("1", "failed", "WorkerDied: node-2 is gone"), ("2", "finished", "trained to its end")]
    failed = client.get(f"{PAGE}{FAILED}").text
    assert "the loss is not finite" in failed
    assert "Traceback (most recent call last)" in failed
    assert "Traceback" not in retried


def test_attempts_count_from_the_first_also_where_only_the_latest_are_recorded() -> None:
    spans = [Span(held=100.0 * at, trained=100.0 * at + 10, ended=100.0 * at + 60) for at in range(300)]
    kept = read_list(spans_as_json(spans), Span.from_json)
    trial = trial_record(0, spans=(*kept[:-1], replace(kept[-1], ended=None)), attempts=300)
    found = attempts(sweep_record(trials=[trial], time=SweepTime(sessions=((0.0, 29_940.0),))), trial)
    assert [each.number for each in found] == list(range(301 - len(kept), 301))
    assert len(kept) < 300
    assert [each.trained for each in found[-2:]] == ["50s", "30s"]  # the driver of the last one was killed


def test_a_trial_that_was_cut_off_is_interrupted_and_not_running_or_failed(client: TestClient) -> None:
    page = client.get(f"{PAGE}{CUT_OFF}").text
    assert 'class="state interrupted"' in page
    assert "resume continues it" in page
    sweep = client.get("/sweeps/searched").text
    assert re.search(rf'id="trial-{CUT_OFF}".*?state interrupted', sweep, re.DOTALL)
    assert "1 interrupted" in sweep
    assert 'class="state interrupted"' in client.get("/?state=interrupted").text
    assert "searched" not in client.get("/?state=failed").text


def test_a_checkpoint_says_how_it_is_loaded(client: TestClient, service: AppContext) -> None:
    text = client.get(f"{PAGE}{BEST}").text
    checkpoint = load_sweep(service.config.tracking_uri, "searched").trials[6].checkpoint
    assert f'download_artifacts("{checkpoint}")' in text
    assert "<br>of step 10, with" in text
    assert "sweeps_train.load_model(folder)" in text
    assert f"python -m sweeps retrain searched --trial {BEST}" in text
    assert ">None.<" in client.get(f"{PAGE}{FAILED}").text


def test_the_end_of_the_log_of_each_worker_is_there_and_the_whole_log_as_text(client: TestClient) -> None:
    text = client.get(f"{PAGE}0?worker=1").text
    assert "worker 1, line 399" in text
    assert "worker 1, line 99\n" not in text
    assert "worker 0, line" not in text
    whole = client.get(f"{PAGE}0/logs/1")
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.text.startswith("worker 1, line 0\n")


def test_trials_are_named_by_links_to_their_pages_and_runs(client: TestClient, service: AppContext) -> None:
    record = load_sweep(service.config.tracking_uri, "searched")
    sweep = client.get("/sweeps/searched").text
    for trial in record.trials:
        assert f'href="{PAGE}{trial.trial}"' in sweep
        assert f"/runs/{trial.run_id}" in sweep
    page = client.get(f"{PAGE}{BEST}").text
    assert f"/runs/{record.trials[6].run_id}" in page
    assert f'href="{PAGE}0005"' in page
    assert f'href="{PAGE}0007"' in page


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "front"])
def test_every_figure_is_answered_once_and_then_only_if_it_has_changed(client: TestClient, name: str) -> None:
    first = client.get(f"/sweeps/searched/figures/{name}")
    assert first.status_code == 200
    document = first.json()
    assert document["figures"] or name == "contours"
    assert not {"scattergl", "parcoords"} & {
        trace["type"] for each in document["figures"] for trace in each["figure"]["data"]
    }
    again = client.get(f"/sweeps/searched/figures/{name}", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_any_metric_can_be_chosen_for_the_curves(client: TestClient) -> None:
    page = client.get("/sweeps/searched?metric=eval/accuracy").text
    assert re.findall(r"<option( selected)?>(eval/\w+|train/\w+)", page) == [
        ("", "eval/loss"),
        (" selected", "eval/accuracy"),
        ("", "train/loss"),
    ]
    layout = figure(client, "curves", "metric=eval/accuracy")["figures"][0]["figure"]["layout"]
    assert layout["yaxis"]["title"]["text"] == "eval/accuracy"
    assert figure(client, "curves", "metric=none/such")["figures"] == []


def test_chosen_trials_are_drawn_in_colours_of_their_own_and_stay_chosen_on_other_pages(client: TestClient) -> None:
    names = [trace["name"] for trace in figure(client, "curves", "trial=2&trial=0006")["figures"][0]["figure"]["data"]]
    assert [name.split(":")[0] for name in names] == ["other trials", "0002", "0006 (best)"]
    page = client.get("/sweeps/searched?trial=0002&trial=0006&page=1&sort=steps").text
    assert page.count(" checked") == 2
    assert "trial=0002&amp;trial=0006" in page, "links keep what is chosen"


def test_the_axis_is_of_the_good_curves_until_all_are_asked_for(client: TestClient) -> None:
    def axis(query: str) -> Any:
        return figure(client, "curves", query)["figures"][0]["figure"]["layout"]["yaxis"]

    assert axis("")["range"][1] < 1.5, "the first values are above 2"
    assert "range" not in axis("axis=all")
    assert axis("axis=log")["type"] == "log"
    assert axis("axis=nonsense")["range"] == axis("")["range"]


def test_figures_can_be_read_as_tables(client: TestClient) -> None:
    curves = client.get("/sweeps/searched/figures/curves/table?metric=train/loss").text
    assert "train/loss by step" in curves
    assert curves.count("<tr>") == 1 + 6 + 6 * 10
    assert f'href="{PAGE}0003"' in curves
    assert "train.lr" in client.get("/sweeps/searched/figures/importance/table").text.replace(">lr<", ">train.lr<")
    assert client.get("/sweeps/searched/figures/slices/table").status_code == 404


def test_the_library_of_the_figures_comes_from_the_service_and_is_kept_by_browsers(client: TestClient) -> None:
    page = client.get("/sweeps/searched").text
    (address,) = re.findall(r'data-plotly="([^"]+)"', page)
    answer = client.get(address)
    assert "immutable" in answer.headers["cache-control"]
    assert "plotly.js v" in answer.text[:100]
    assert answer.headers["content-encoding"] == "gzip"
    (script,) = re.findall(r'src="(/static/figures.js[^"]+)"', page)
    assert "immutable" in client.get(script).headers["cache-control"]
    assert client.get("/sweeps/searched").headers["cache-control"] == "no-store"


def test_figures_name_neither_others_sweeps_nor_unknown_figures(client: TestClient) -> None:
    for path in ("/sweeps/none/figures/curves", "/sweeps/searched/figures/none", "/sweeps/none/trials/1"):
        assert client.get(path).status_code == 404
    assert client.get("/sweeps/searched/figures/curves?trial=" + "&trial=".join("1" * 30)).status_code == 422


def test_compared_sweeps_have_a_figure(client: TestClient) -> None:
    (address,) = re.findall(r'data-figure="(/compare/figure[^"]+)"', client.get(f"/compare{BOTH}").text)
    document = client.get(address.replace("&amp;", "&")).json()
    names = {trace["name"] for trace in document["figures"][0]["figure"]["data"]}
    assert names == {"searched", "other"}
    assert client.get("/compare/figure?sweep=searched&sweep=none").status_code == 404


def test_a_trial_that_does_not_run_has_no_stop_button_and_cannot_be_stopped(client: TestClient) -> None:
    assert "/stop" not in client.get(f"{PAGE}0").text
    answer = client.post(f"{PAGE}0/stop")
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


def test_what_a_parameter_is_called_cannot_become_markup(tmp_path: Path) -> None:
    record_searched_sweep(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "outputs", "<b>", status="finished")
    service = new_service(tmp_path)
    client = client_of_app(make_app(service), base_url="http://127.0.0.1:8642")
    for path in ("/sweeps/%3Cb%3E", "/sweeps/%3Cb%3E/trials/3"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<b>" not in re.sub(r"<b>[\d.]+</b>", "", answer.text)
    document = client.get("/sweeps/%3Cb%3E/figures/best").json()
    assert document["leads_to"] == "/sweeps/%3Cb%3E/trials/"
    close(service)
