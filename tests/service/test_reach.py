"""Reach of users: no sweep, model or config of others, whatever comes between. A check that is made when something is
submitted is made again where it happens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import API, Api, Asking, serving
from sqlalchemy import update

from sweeps.compose.service_config import compose_service
from sweeps.errors import SweepsError, UserError
from sweeps.registry.model_owners import VARIABLE, ModelRights, claim, rights_of_process
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.job_requests import Reproduce, Request, Resume, Retrain, Run
from sweeps.service.queue.jobs import Job
from sweeps.service.schedules.firing import fire_now
from sweeps.service.user_operations import own_files
from sweeps.tracking.client import connect

THEIRS = ["search.warm_start=[theirs]"]
SCHEDULE = {"name": "mine", "cron": "30 4 * * *", "conf": "digits", "overrides": ["search.num_trials=3"]}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Ada's sweep ``theirs`` and Bob's ``mine``."""
    folder = tmp_path_factory.mktemp("reach")
    (folder / "conf" / "schedule").mkdir(parents=True)
    text = "# How we train Chimera.\nname: chimera\ncron: 0 3 * * *\nconf: digits\nproject: ada\n"
    (folder / "conf" / "schedule" / "chimera.yaml").write_text(text)
    with serving(folder, f"config_dirs=[{folder / 'conf'}]", "queue.waiting_per_user=6") as api:
        api.token("root", "admin")
        yield api


@pytest.fixture
def api(module: Api) -> Api:
    """The service, without saved schedules and waiting jobs."""
    shutil.rmtree(module.service.saved_schedules.folder, ignore_errors=True)
    module.service.scheduler.refresh()
    with writing(module.service.database) as connection:
        waiting = jobs.query(connection, states=["queued"], user="bob")
        for job in waiting:
            if job.sweep != "mine":
                jobs.cancel(connection, job.id, 1.0)
        connection.execute(update(tables.tokens).where(tables.tokens.c.user == "bob").values(revoked=1.0))
    return module


def start(api: Api, job: Job | int) -> dict[str, str]:
    """Make the checks before a job's start; return what its process gets in its environment."""
    if isinstance(job, int):
        with api.service.database.connect() as connection:
            job = jobs.find(connection, job)
    return dict(api.service.runner.check(job))


def queued(api: Api, request: Request, sweep: str, user: str = "bob") -> Job:
    """A job that was allowed when it was submitted."""
    with writing(api.service.database) as connection:
        return jobs.submit(connection, request, sweep, user=user, project=user, now=1.0)


def save(client: TestClient, **settings: Any) -> None:
    answer = client.post(f"{API}/schedules", json={"schedule": {**SCHEDULE, **settings}})
    assert answer.status_code == 201, answer.text


def test_a_paused_schedule_that_learns_from_anothers_sweep_is_not_fired_by_hand(api: Api, asking: Asking) -> None:
    bob = asking()
    save(bob, enabled=False, overrides=THEIRS)
    refused = bob.post(f"{API}/schedules/mine/run")
    assert (refused.status_code, "there is no sweep 'theirs'" in refused.json()["detail"]) == (422, True)
    assert bob.post(f"{API}/schedules/mine/resume").status_code == 422


def test_an_admin_does_not_fire_for_a_user_what_the_user_may_not_reach(api: Api, asking: Asking) -> None:
    """Bob's project would see the result of what the admin may read."""
    eve = asking("eve", "admin")
    save(asking(), enabled=False, overrides=THEIRS)
    for verb in ("run", "resume"):
        assert eve.post(f"{API}/schedules/mine/{verb}").status_code == 422
    save(eve, name="eves", overrides=THEIRS)
    assert eve.post(f"{API}/schedules/eves/run").status_code == 202


def test_a_firing_that_learns_from_anothers_sweep_does_not_start(api: Api, asking: Asking) -> None:
    """However it came into the queue: at its time, or by the operator's command line."""
    save(asking(), enabled=False, overrides=THEIRS)
    definition = api.service.scheduler.definitions["mine"]
    with writing(api.service.database) as connection:
        by_bob, by_eve = (fire_now(connection, definition, 5.0, user) for user in ("bob", "eve"))
    api.token("eve", "admin")
    for job in (by_bob, by_eve):
        with pytest.raises(UserError, match="there is no sweep 'theirs'"):
            start(api, job)


@pytest.mark.parametrize(
    ("request_", "sweep"),
    [
        (Run(conf="digits", overrides=THEIRS), "warm"),
        (Retrain(sweep="theirs", no_register=True), "again"),
        (Reproduce(sweep="theirs"), "same"),
        (Resume(sweep="theirs"), "theirs"),
    ],
    ids=lambda each: each.verb if isinstance(each, Run | Retrain | Reproduce | Resume) else "",
)
def test_a_job_whose_user_has_lost_a_project_does_not_start(
    api: Api, asking: Asking, request_: Request, sweep: str
) -> None:
    asking("bob", "run", "ada")
    job = queued(api, request_, sweep)
    try:
        start(api, job)
    except SweepsError as error:
        assert "there is no sweep" not in str(error)  # noqa: PT017 - such as that its folder is gone
    with writing(api.service.database) as connection:
        connection.execute(update(tables.tokens).where(tables.tokens.c.user == "bob").values(revoked=1.0))
    asking()
    with pytest.raises(SweepsError, match="there is no sweep 'theirs'"):
        start(api, job)


def test_firing_by_hand_counts_among_what_waits(api: Api, asking: Asking) -> None:
    bob = asking()
    save(bob)
    answers = [bob.post(f"{API}/schedules/mine/run") for _ in range(6)]
    assert [answer.status_code for answer in answers[-2:]] == [202, 422]
    assert "queue.waiting_per_user" in answers[-1].json()["detail"]


def test_of_two_who_may_use_a_models_name_the_first_that_registers_it_owns_it(api: Api, asking: Asking) -> None:
    first, second, third = (
        client.post(f"{API}/sweeps/{sweep}/retrain", json={"trial": "0", "model": "shared", "name": f"{user}-full"})
        for user, sweep, client in (
            ("ada", "theirs", asking("ada")),
            ("bob", "mine", asking()),
            ("eve", "mine", asking("eve", "admin")),
        )
    )
    assert [answer.status_code for answer in (first, second, third)] == [202, 202, 202]
    environments = [start(api, answer.json()["id"]) for answer in (first, second, third)]
    adas, bobs, eves = (rights_of(environment) for environment in environments)
    client = connect(api.uri)
    claim(client, "shared", adas)
    claim(client, "shared", adas)
    claim(client, "shared", eves)
    with pytest.raises(UserError, match="register=shared: the registry has a model of this name that is not yours"):
        claim(client, "shared", bobs)
    with pytest.raises(UserError, match="not yours"):
        start(api, second.json()["id"])
    assert client.get_registered_model("shared").tags == {"sweeps.user": "ada", "sweeps.project": "ada"}
    again = asking().post(f"{API}/sweeps/mine/retrain", json={"trial": "0", "model": "shared"})
    assert (again.status_code, "not yours" in again.text) == (422, True)
    claim(client, "shared", None)  # on the operator's terminal


def rights_of(environment: dict[str, str]) -> ModelRights:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, environment[VARIABLE])
        rights = rights_of_process()
    assert rights is not None
    return rights


def test_a_model_of_an_earlier_release_belongs_to_who_sees_all_its_sweeps(api: Api, asking: Asking) -> None:
    client = connect(api.uri)
    for model, sweep in (("adas", "theirs"), ("bobs", "mine")):
        client.create_registered_model(model)
        client.create_model_version(model, "file:///x", tags={"sweeps.sweep": sweep})
    bob = asking()
    body = {"trial": "0", "name": "bobs-full"}
    assert bob.post(f"{API}/sweeps/mine/retrain", json={**body, "model": "adas"}).status_code == 422
    job = bob.post(f"{API}/sweeps/mine/retrain", json={**body, "model": "bobs"}).json()
    claim(client, "bobs", rights_of(start(api, job["id"])))
    assert client.get_registered_model("bobs").tags["sweeps.user"] == "bob"


def test_names_and_values_of_the_operators_configs_are_for_admins(asking: Asking) -> None:
    bob, eve = asking(), asking("eve", "admin")
    assert eve.get(f"{API}/confs").json()["schedule"]["chimera"] == "How we train Chimera."
    assert "local" in eve.get(f"{API}/confs/service").json()["service"]
    told = [bob.get(f"{API}/confs{path}") for path in ("", "/schedule", "/service", "/schedules")]
    assert [answer.status_code for answer in told] == [200, 404, 404, 404]
    assert told[0].json().keys() == eve.get(f"{API}/confs").json().keys() - {"schedule", "service"}
    for override in (
        "+schedule=nope",
        "+schedule=chimera",
        "+service=local",
        "schedule=nope",
        "+service=choice(a,local)",
    ):
        told.append(bob.post(f"{API}/plans", json={"conf": "digits", "overrides": [override]}))
        assert (told[-1].status_code, "for the operator's files" in told[-1].text) == (422, True)
    assert not [answer.text for answer in told if "Chimera" in answer.text or "8642" in answer.text]
    assert json.loads(told[0].text)["conf"]["digits"]


def test_completions_tell_nothing_of_the_operators_configs(asking: Asking) -> None:
    bob = asking()
    for typed in ("schedule=", "+schedule=ch", "++service=", "schedule/", "schedule.name="):
        assert bob.get("/submit/complete", params={"typed": typed}).json() == []
    assert bob.get("/submit/complete", params={"typed": "model=ml"}).json()[0]["text"] == "model=mlp"


@pytest.mark.parametrize("name", ["schedules", "service.log.1"])
def test_no_sweep_takes_the_place_of_a_file_of_the_service(asking: Asking, name: str) -> None:
    """Its folder would be where the service writes, and be removed with a sweep that did not begin."""
    refused = asking().post(f"{API}/sweeps", json={"conf": "digits", "name": name})
    assert refused.status_code == 422
    assert f"name={name}: is the name of a file of the service" in refused.text or "already exists" in refused.text


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ((), ("audit.jsonl", "service.log", "service.db")),
        (("database=postgresql+psycopg://host/sweeps", "log.file=logs/digits"), ("audit.jsonl",)),
        # A folder `runs.db-journal` would be in the way of SQLite: the store could not be opened any more.
        (("database=sqlite://", "tracking_uri=sqlite:///outputs/runs.db"), ("audit.jsonl", "service.log", "runs.db")),
    ],
)
def test_only_files_in_the_folder_of_the_sweeps_are_in_the_way_of_names(settings: tuple[str, ...], own: object) -> None:
    assert own_files(compose_service(settings, ())) == own


def test_an_export_has_no_line_that_its_address_has_made(asking: Asking) -> None:
    for file in ("best\u2028task: x.yaml", "best\u202e.yaml"):
        assert asking().get(f"{API}/sweeps/mine/best.yaml", params={"file": file}).status_code == 422


def test_no_models_name_looks_like_anothers(asking: Asking) -> None:
    refused = asking().post(f"{API}/sweeps/mine/retraining", json={"trial": "0", "model": "sha\u200bred"})
    assert (refused.status_code, "a model's name must" in refused.text) == (422, True)


def test_a_paused_schedule_has_only_what_can_be_printed(asking: Asking) -> None:
    for override in ("\u202ea=1", "\x1b]0;x\x07=1"):
        body = {"schedule": {**SCHEDULE, "enabled": False, "overrides": [override]}}
        refused = asking().post(f"{API}/schedules", json=body)
        assert (refused.status_code, "cannot be printed" in refused.text) == (422, True)


def test_a_job_log_has_nothing_that_a_terminal_obeys(api: Api, asking: Asking) -> None:
    with api.service.database.connect() as connection:
        job = jobs.find(connection, 2)
    log = api.service.runner.log(job)
    log.parent.mkdir(parents=True)
    secret = "hf_\x1b[0mABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh"
    log.write_text(f"a\x1b]0;title\x07b\x1b[2J\u202ec\x1b]52;c;Y3VybA==\x1b\\d {secret}\n")
    text = asking().get(f"{API}/jobs/2/log").text
    assert text.startswith("abcd ")
    assert "ABCDEFGHIJKLMNOPQRSTUVWXYZ" not in text  # the token was not in one piece
