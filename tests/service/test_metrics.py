"""/metrics for Prometheus, the dashboard that draws them, and the log as lines of JSON."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import API, Api, serving

from sweeps.service.counters import CountingHandler
from sweeps.service.service_log import JsonFormatter, logged_about


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("metrics")) as api:
        api.client().get(f"{API}/health")  # a request to count
        yield api


def scraped(api: Api, token: str | None = None) -> dict[str, dict[str, float]]:
    """Value of each sample, by its name and by the value of its label."""
    answer = api.client(token).get("/metrics")
    assert answer.status_code == 200, answer.text
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[" ".join(sample.labels.values())] = sample.value
    return found


def test_numbers_of_queue_sweeps_and_trials_are_scraped(api: Api) -> None:
    found = scraped(api)
    assert found["sweeps_jobs"]["queued"] == 2
    assert found["sweeps_jobs"]["failed"] == 0
    assert found["sweeps_queue_oldest_seconds"][""] > 1e9
    assert sum(found["sweeps_sweeps"].values()) == 3
    assert sum(found["sweeps_trials"].values()) >= 3
    assert (found["sweeps_storage_up"][""], found["sweeps_tracking_up"][""]) == (1, 1)
    before = found["sweeps_requests_total"]["GET 200"]
    assert scraped(api)["sweeps_requests_total"]["GET 200"] == before + 1
    assert "sweeps_goodput_ratio" in found


def test_firings_and_errors_are_counted(api: Api) -> None:
    before = scraped(api)
    CountingHandler().emit(logging.LogRecord("a", logging.ERROR, "", 0, "", (), None))
    definition = next(iter(api.service.scheduler.definitions.values()))
    assert {"queued", "skipped", "missed"} == before["sweeps_firings_total"].keys()
    assert api.service.scheduler._decide(definition, 1.0) is False  # its first decision
    assert scraped(api)["sweeps_log_messages_total"]["ERROR"] == before["sweeps_log_messages_total"]["ERROR"] + 1


def test_metrics_have_a_token_of_their_own_that_opens_nothing_else(api: Api) -> None:
    token = api.token("prometheus", "metrics")
    assert scraped(api, token)["sweeps_storage_up"] == {"": 1}
    assert "sweeps_jobs" in scraped(api, api.token("eve", "admin"))
    assert api.client().get("/metrics").status_code == 401
    for role in ("read", "run"):
        refused = api.client(api.token("bob", role)).get("/metrics")
        assert (refused.status_code, "the role metrics" in refused.text) == (403, True)
    for path in (f"{API}/sweeps", f"{API}/jobs", "/", f"{API}/confs", f"{API}/audit"):
        assert api.client(token).get(path).status_code == 403


def test_no_metric_names_a_user_or_a_sweep(api: Api) -> None:
    text = api.client(api.token("eve", "admin")).get("/metrics").text
    assert not [name for name in ("theirs", "made-by-hand", "ada", "bob", "digits") if name in text]


def test_the_dashboard_draws_metrics_that_exist(api: Api, checkout: Path) -> None:
    dashboard = json.loads((checkout / "docs" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    named = {name for text in asked for name in re.findall(r"\b(?:sweeps|process)_\w+", text)}
    known = scraped(api, api.token("eve", "admin")).keys()
    assert len(asked) >= 12
    assert named - known == set()
    own = {name for name in known if name.startswith("sweeps_") and not name.endswith(("_created", "_sum", "_count"))}
    assert own - named == {"sweeps_build"}
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"] if "targets" in panel} == {"${datasource}"}


def test_a_log_of_json_has_the_ids_of_job_and_sweep() -> None:
    record = logging.LogRecord("sweeps.x", logging.INFO, "", 0, "job %d\nstarts", (3,), None)
    with logged_about(job=3, sweep="digits-1"), logged_about(schedule=None):
        document = json.loads(JsonFormatter().format(record))
    assert {key: document[key] for key in ("level", "logger", "message", "job", "sweep")} == {
        "level": "INFO",
        "logger": "sweeps.x",
        "message": "job 3\nstarts",
        "job": 3,
        "sweep": "digits-1",
    }
    assert "sweep" not in json.loads(JsonFormatter().format(record))
