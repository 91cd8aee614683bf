"""Actions on a sweep's page: their effects, and the messages for mistakes."""

from __future__ import annotations

import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from recording import CONFIG, open_recorder
from serving import API, Api
from waiting import wait_until

from sweeps.plan.plan import make_plan
from sweeps.plan.saved_sweep import save
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Extend
from sweeps.service.queue.jobs import Job
from sweeps.tracking.control_channel import RequestListener
from sweeps.tracking.reader import load_sweep


def newest(api: Api) -> Job:
    with api.service.database.connect() as connection:
        return jobs.query(connection, limit=1)[0]


def test_a_trial_is_retrained_as_a_sweep_of_its_own(api: Api, client: TestClient) -> None:
    page = client.get("/sweeps/made-by-hand").text
    assert 'action="/sweeps/made-by-hand/retrain"' in page
    assert all(f'name="{name}" value="{value}"' in page for name, value in (("trial", "0"), ("model", "digits")))
    form = {"trial": "1", "changes": "train.max_steps=7 seed=3", "model": "mine"}
    answer = client.post("/sweeps/made-by-hand/retrain", data=form)
    job = newest(api)
    assert answer.headers["location"] == f"/sweeps/{job.sweep}?done=submitted"
    assert job.parsed_request.arguments()[:4] == ["retrain", "made-by-hand", "train.max_steps=7", "seed=3"]
    assert job.parsed_request.arguments()[-4:] == [
        "--trial=1",
        f"--name={job.sweep}",
        "--register=mine",
        "--alias=champion",
    ]
    client.post("/sweeps/made-by-hand/retrain", data={"trial": "", "changes": "", "model": " "})
    assert newest(api).request["no_register"] is True


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"trial": "99"}, "made-by-hand has no such trial"),
        ({"trial": "first"}, "trial=first: String should match pattern"),
        ({"changes": "--debug"}, "overrides=--debug: String should match pattern"),
        ({"changes": "train.lrr=1"}, "train.lrr=1: there is no such key"),
        ({"model": "a/b"}, "register=a/b: String should match pattern"),
    ],
)
def test_a_mistake_in_what_is_to_be_retrained_is_told_on_its_page(
    api: Api, client: TestClient, form: dict[str, str], told: str
) -> None:
    before = newest(api).id
    answer = client.post("/sweeps/made-by-hand/retrain", data=form)
    assert answer.status_code == 422
    assert told in unescape(answer.text)
    assert newest(api).id == before


def test_what_has_no_checkpoint_is_not_offered_as_a_model_and_cannot_be_one(client: TestClient) -> None:
    assert "/register" not in client.get("/sweeps/made-by-hand").text
    answer = client.post("/sweeps/made-by-hand/register", data={"model": "mine", "trial": "0"})
    assert answer.status_code == 422
    assert "checkpoint" in answer.text
    answer = client.post("/sweeps/made-by-hand/register", data={"model": "a:b", "alias": "-"})
    assert "model=a:b: String should match pattern" in unescape(answer.text)


def test_one_trial_is_told_to_stop_and_a_trial_that_does_not_run_cannot_be(
    api: Api, client: TestClient, tmp_path: Path
) -> None:
    recorder = open_recorder(api.uri, "alive", folder=tmp_path / "alive")
    for trial in ("0000", "0001"):
        recorder.trials.start(trial, {"train.lr": 0.1}, CONFIG, 1)
    recorder.trials.end("0001", "finished", 5, 1)
    recorder.update({"running": 1, "finished": 1}, [], {"wall_s": 1.0})
    wait_until(lambda: [trial.state for trial in load_sweep(api.uri, "alive").trials] == ["running", "finished"])
    api.service.records.forget("alive")
    choice = '<select id="stop-trial-trial" name="trial"><option>0000</option></select>'
    wait_until(lambda: choice in client.get("/sweeps/alive").text)
    told: list[Any] = []

    def handle(request: Any) -> str:
        told.append((request["verb"], request["trial"]))
        return "told"

    since = time.monotonic()
    assert client.post(f"{API}/sweeps/alive/stop", json={"trial": "0"}).status_code == 202  # nobody answers yet
    assert time.monotonic() - since < 20  # a driver has 30 s to answer
    with RequestListener(recorder.ids, handle):  # as its driver has it
        answer = client.post("/sweeps/alive/trials/stop", data={"trial": "0"})
        wait_until(lambda: bool(told))
    assert answer.headers["location"] == "/sweeps/alive?done=stop-trial"
    assert told == [("stop", "0000")]
    assert "The trial was asked to stop." in client.get(answer.headers["location"]).text
    answer = client.post("/sweeps/alive/trials/stop", data={"trial": "1"})
    assert (answer.status_code, "is not running" in answer.text) == (422, True)
    assert client.post("/sweeps/alive/trials/stop", data={"trial": " "}).status_code == 422
    recorder.close("finished")


@pytest.mark.parametrize(
    ("state", "told", "is_noted"),
    [
        ("queued", "It was removed from the queue.", True),
        ("running", "It was asked to stop.", True),
        ("finished", "It had already ended.", False),
    ],
)
def test_who_cancels_a_job_that_has_started_or_ended_meanwhile_is_told_so(
    api: Api, client: TestClient, state: str, told: str, *, is_noted: bool
) -> None:
    job = api.submit(f"cancelled-{state}")
    with writing(api.service.database) as connection:
        jobs.set_values(connection, job.id, state=state)
    answer = client.post(f"/jobs/{job.id}/cancel")
    assert told in client.get(answer.headers["location"]).text
    assert any(each.about.get("job") == job.id for each in api.service.audit.read(10)[0]) is is_noted
    with writing(api.service.database) as connection:
        jobs.set_values(connection, job.id, state="stopped")


def test_a_sweep_that_has_ended_is_said_to_be_in_the_queue_when_it_is_to_be_extended(
    api: Api, client: TestClient
) -> None:
    folder = api.service.config.output_dir
    plan = make_plan(["conf=digits", f"output_dir={folder}", f"tracking.uri={api.uri}"], [], "ended", "")
    assert not open_recorder(api.uri, "ended", folder=plan.folder).close("stopped")
    save(plan)
    answer = client.post("/sweeps/ended/extend", data={"changes": "search.num_trials=40"})
    assert answer.headers["location"] == "/sweeps/ended?done=submitted", answer.text
    jobs_of = client.get(f"{API}/sweeps/ended/jobs").json()
    assert client.post(f"{API}/jobs/{jobs_of[0]['id']}/cancel").json()["state"] == "cancelled"


def test_sweeps_are_compared_side_by_side(client: TestClient) -> None:
    assert 'href="/compare?sweep=mine"' in client.get("/sweeps/mine").text
    form = client.get("/compare?sweep=mine").text
    assert 'name="sweep" value="mine"' in form
    assert '<option value="theirs">' in form
    text = client.get("/compare?sweep=mine&sweep=theirs&sweep=").text
    assert "min of eval/loss" in text
    assert text.count('<tr class="best">') == 2  # as good as each other
    assert "Nothing." in text
    answer = client.get("/compare?sweep=mine&sweep=none")
    assert (answer.status_code, "there is no sweep &#39;none&#39;" in answer.text) == (422, True)


def test_a_sweep_that_two_people_resume_at_once_gets_one_job(
    api: Api, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(
        ["conf=digits", f"output_dir={api.service.config.output_dir}", f"tracking.uri={api.uri}"], [], "half", ""
    )
    assert not open_recorder(api.uri, "half", folder=plan.folder).close("stopped")
    save(plan)
    make, answers = api.service.planner.make, list[Any]()

    def interrupted(*arguments: Any) -> Any:
        monkeypatch.setattr(api.service.planner, "make", make)
        answers.append(client.post(f"{API}/sweeps/half/resume"))
        return make(*arguments)

    monkeypatch.setattr(api.service.planner, "make", interrupted)
    answers.append(client.post(f"{API}/sweeps/half/resume"))
    assert [answer.status_code for answer in answers] == [202, 422]
    assert answers[1].json()["detail"] == f"half need not be resumed: its job {answers[0].json()['id']} is queued"


def test_a_sweep_whose_driver_starts_is_in_the_queue_and_can_be_stopped(api: Api, client: TestClient) -> None:
    request, heartbeat = Extend(sweep="made-by-hand", changes=["search.num_trials=9"]), api.service.heartbeat
    heartbeat.beat()
    with writing(api.service.database) as connection:
        job = jobs.submit(connection, request, "made-by-hand", user="local", project="local", now=1.0)
        jobs.set_values(connection, job.id, state="running", service=heartbeat.service, host=heartbeat.host)
    api.app.state.pages.changed()
    try:
        assert 'id="job-made-by-hand"' in client.get("/queue").text
        page = client.get("/sweeps/made-by-hand").text
        assert "its driver is starting or ending" in page
        assert 'action="/sweeps/made-by-hand/stop"' in page
        client.post("/sweeps/made-by-hand/stop")
        assert newest(api).stop_asked is not None
    finally:
        with writing(api.service.database) as connection:
            jobs.set_values(connection, job.id, state="stopped")
