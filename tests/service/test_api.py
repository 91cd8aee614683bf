"""The REST API: it answers as the command line does, also mistakes, and tells each user of their own sweeps alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from recording import copy_small_sweeps, record_small_sweep
from serving import API, Api, new_api
from sqlalchemy import update
from waiting import wait_until

from sweeps.errors import TrackingUnreachable
from sweeps.operations.serialization import read_record, write_record
from sweeps.service import record_cache
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Run
from sweeps.service.record_cache import FRESH_S, CacheEntry
from sweeps.tracking.reader import load_sweep


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service with the ended sweeps digits-0, digits-1 and digits-2, and an empty queue."""
    folder = tmp_path_factory.mktemp("service")
    copy_small_sweeps(folder)
    api = new_api(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", api.uri)  # as `serve` does
        yield api
    api.close()


def get(client: TestClient, path: str, expected: int = 200, **query: Any) -> Any:
    answer = client.get(API + path, params=query)
    assert answer.status_code == expected, answer.text
    return answer.json()


def post(client: TestClient, path: str, expected: int = 202, **body: Any) -> Any:
    answer = client.post(API + path, json=body)
    assert answer.status_code == expected, answer.text
    return answer.json()


def test_sweeps_are_listed_in_pages_and_shown_as_on_a_terminal(api: Api) -> None:
    client = api.client()
    page = get(client, "/sweeps", limit=2, offset=1)
    assert (page["total"], [each["sweep"] for each in page["sweeps"]]) == (3, ["digits-1", "digits-0"])
    assert get(client, "/sweeps", status="running")["total"] == 0
    record = load_sweep(api.uri, "digits-1")
    assert get(client, "/sweeps/digits-1") == record.as_json()
    sent = client.get(f"{API}/sweeps/digits-1/record").content
    assert read_record(sent) == record == read_record(write_record(record))
    assert get(client, "/sweeps/digits-1/best")["best"] == record.as_json()["best"]
    trials = get(client, "/sweeps/digits-1/trials", state="failed")
    assert [(each["trial"], each["state"]) for each in trials["trials"]] == [("2", "failed")]
    curves = get(client, "/sweeps/digits-1/curves")
    assert [point["value"] for point in curves["curves"]["0"]] == [1.0, 0.5, pytest.approx(1 / 3), 0.25, 0.2]


def test_a_mistake_is_answered_in_the_terminals_words(api: Api) -> None:
    client = api.client()
    wrong = post(client, "/sweeps", 422, conf="digits", overrides=["serach.num_trials=3"])
    assert wrong["detail"] == "serach={'num_trials': 3}: there is no such key; did you mean search?"
    assert post(client, "/sweeps", 404, conf="digitz")["detail"].startswith("conf=digitz: there is no such conf; did")
    assert "conv_net" in post(client, "/sweeps", 404, conf="digits", overrides=["model=conv_ne"])["detail"]
    unknown = get(client, "/sweeps/digits-9", 404)["detail"]
    assert unknown == "there is no sweep 'digits-9'; did you mean digits-2, digits-1, digits-0?"
    assert "is not running: it is finished" in post(client, "/sweeps/digits-1/stop", 422)["detail"]
    assert "name what to remove" in post(client, "/clean", 422)["detail"]
    assert post(client, "/sweeps", 422, conf="digits", overrides=["--debug"])["detail"].startswith("body.overrides.0: ")


def test_a_mistake_in_a_request_is_answered_with_its_key_in_plain_words(api: Api) -> None:
    client = api.client()
    wrong = post(client, "/plans", 422, override=["search.num_trials=3"], name=7)["detail"].splitlines()
    assert wrong == [
        "body.conf: is required",
        "body.name: must be a valid string",
        "body.override: there is no such key",
    ]
    for path, key in (("/sweeps", "status"), ("/sweeps/digits-1/trials", "state")):
        assert f"query.{key}: must be '" in get(client, path, 422, **{key: "finishd"})["detail"]
        assert get(client, path, 200, **{key: "finished"})["total"] > 0
    assert get(client, "/jobs", 422, limt=5)["detail"] == "query.limt: there is no such parameter; did you mean limit?"


def test_a_dry_run_starts_nothing_and_sweeps_are_written_to_the_services_own_folder(api: Api, tmp_path: Path) -> None:
    api = Api(api.uri, f"database=sqlite:///{tmp_path}/service.db", f"output_dir='{tmp_path}/the team'")
    plan = post(api.client(), "/plans", 200, conf="digits", overrides=["search.num_trials=3"], name="mine")
    config = plan["plan"]["config"]
    assert (config["search"]["num_trials"], config["output_dir"]) == (3, f"{tmp_path}/the team")
    assert "Nothing was started." in plan["text"]
    assert get(api.client(), "/jobs")["jobs"] == []
    job = post(api.client(), "/sweeps", conf="digits", name="mine")
    assert job["request"]["overrides"] == [f"output_dir='{tmp_path}/the team'"]
    api.close()


def test_the_queue_can_be_reordered_and_a_job_taken_out(api: Api) -> None:
    client = api.client()
    first = post(client, "/sweeps", conf="digits", name="first")
    second = post(client, "/sweeps", conf="digits", name="second", priority=1)
    assert [job["sweep"] for job in get(client, "/jobs", state="queued")["jobs"]] == ["second", "first"]
    assert client.patch(f"{API}/jobs/{first['id']}", json={"priority": 9}).json()["priority"] == 9
    assert [job["sweep"] for job in get(client, "/jobs", state="queued")["jobs"]] == ["first", "second"]
    assert post(client, f"/jobs/{second['id']}/cancel", 200)["state"] == "cancelled"
    assert post(client, "/sweeps/first/stop") is None
    assert get(client, f"/jobs/{first['id']}")["state"] == "cancelled"
    assert client.get(f"{API}/jobs/{first['id']}/log").text == ""


def test_a_secret_in_an_override_or_an_error_is_not_shown(api: Api) -> None:
    job = api.submit("mine", user="ada")
    asked = Run(conf="digits", overrides=["task.arguments.api_key=hunter22"])
    error = "task.arguments.api_key=hunter22: is wrong"
    values = {"state": "failed", "error": error, "request": jobs.document_of(asked)}
    with writing(api.service.database) as connection:
        connection.execute(update(tables.jobs).where(tables.jobs.c.id == job.id).values(values))
    for page in (f"{API}/jobs/{job.id}", "/sweeps/mine", "/", "/submit?like=mine"):
        text = api.client().get(page).text
        assert ("api_key=***" in text, "hunter22" in text) == (True, False), page


def test_the_job_of_a_sweep_that_did_not_begin_is_found_by_its_name(api: Api) -> None:
    job = api.submit("late")
    with writing(api.service.database) as connection:
        failed = {"state": "failed", "makes": None, "ended": 2.0}
        connection.execute(update(tables.jobs).where(tables.jobs.c.id == job.id).values(failed))
    assert [(each["id"], each["state"]) for each in get(api.client(), "/sweeps/late/jobs")] == [(job.id, "failed")]


def test_many_who_look_cause_one_read_and_see_the_last_snapshot_while_the_store_is_away() -> None:
    reads: list[int] = []
    away = threading.Event()

    def read() -> int:
        time.sleep(0.05)
        if away.is_set():
            raise TrackingUnreachable("MLflow does not answer")
        reads.append(1)
        return len(reads)

    with ThreadPoolExecutor(20) as people:
        kept = CacheEntry(read, lambda: None)
        seen = [future.result().content for future in [people.submit(kept.get) for _ in range(100)]]
        assert set(seen) == {1}
        time.sleep(FRESH_S + 0.1)
        assert kept.get().content == 1  # nobody waits for the next one
        wait_until(lambda: kept.get().content == 2)
        assert len(reads) == 2
        away.set()
        wait_until(lambda: kept.get().trouble)
        assert (kept.get().content, kept.get().trouble) == (2, "MLflow does not answer")
        with pytest.raises(TrackingUnreachable):
            CacheEntry(read, lambda: None).get()


class HangingStore:
    """A value in a store that may hang while it is read, and then not answer either."""

    def __init__(self) -> None:
        self.goes_on, self.is_away, self.reads = threading.Event(), threading.Event(), 0
        self.entry = CacheEntry(self._read, self._check)

    def _read(self) -> int:
        self.goes_on.wait(20)
        self.reads += 1
        return self.reads

    def _check(self) -> None:
        if self.is_away.is_set():
            raise TrackingUnreachable("MLflow does not answer")


def test_a_store_that_hangs_in_the_middle_of_a_read_is_noticed_and_one_that_is_slow_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_cache, "ASK_AFTER_S", 0.05)
    store = HangingStore()
    with ThreadPoolExecutor(1) as people:
        waiting = people.submit(store.entry.get)
        time.sleep(0.2)
        assert not waiting.done()
        store.is_away.set()
        with pytest.raises(TrackingUnreachable):
            waiting.result(5)
        store.is_away.clear()
        store.goes_on.set()
        assert store.entry.get().content == 1


def test_a_slow_store_is_waited_for_where_what_is_known_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASK_AFTER_S", "FRESH_S", "STALE_S"):
        monkeypatch.setattr(record_cache, name, 0.02)
    store = HangingStore()
    store.goes_on.set()
    assert store.entry.get().content == 1
    store.goes_on.clear()
    time.sleep(0.1)
    recent = store.entry.get()
    assert (recent.content, recent.trouble) == (1, "MLflow takes longer than 0.02 s to answer")
    monkeypatch.setattr(record_cache, "OLD_S", 0.05)
    store.is_away.set()
    assert (store.entry.get().content, store.entry.get().trouble) == (1, "MLflow does not answer")
    store.is_away.clear()
    with ThreadPoolExecutor(1) as people:
        waiting = people.submit(store.entry.get)
        time.sleep(0.2)
        store.goes_on.set()
        assert waiting.result(5).content == 2


def test_a_request_of_thousands_of_mistakes_is_told_some_of_them(api: Api) -> None:
    for body in ({"conf": "digits", **{f"k{number}": 1 for number in range(5000)}}, {"overrides": [1] * 50_000}):
        answer = api.client().post(f"{API}/plans", json=body)
        assert (answer.status_code, len(answer.text) < 10_000) == (422, True)


def test_a_sweep_has_the_names_that_a_terminal_allows(api: Api) -> None:
    record_small_sweep(api.uri, "größe-模型")
    assert get(api.client(), "/sweeps/größe-模型")["sweep"] == "größe-模型"
    assert post(api.client(), "/plans", 200, conf="digits", name="größe-2")["plan"]["sweep"] == "größe-2"
    for wrong in (".größe", "模" * 100):
        assert "body.name" in post(api.client(), "/plans", 422, conf="digits", name=wrong)["detail"]
