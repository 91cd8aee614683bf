"""A job that was allowed when it was submitted is checked once more before it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recording import record_small_sweep
from serving import API, Api

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.config.nights import Nights
from sweeps.errors import ConfigError, SweepsError
from sweeps.service.database.engine import writing
from sweeps.service.nights.night import Night, begin
from sweeps.service.nights.repeats import repeats_name
from sweeps.service.queue import claims, jobs
from sweeps.service.queue.job_requests import Resume, Retrain, Run
from sweeps.service.queue.jobs import Job
from sweeps.service.schedules.definition import load_definitions
from sweeps.service.schedules.firing import fire_now

OWN = ["model=custom", "model._target_=theirs.build", "space=none", "search.points=[]"]
NIGHTLY = """
name: mine
cron: 0 3 * * *
conf: digits
overrides: ["tracking.experiment=a/../b", "space=none", "train.lr=tag(log, interval(1e-4, 1e-1))"]
window: {hours: 4}
nights: {champion: {model: digits}}
"""


def service(uri: str, *tokens: str) -> Api:
    return Api(uri, f"database=sqlite:///{Path.cwd()}/service.db", *tokens)


@pytest.fixture(autouse=True)
def theirs(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(working_folder)
    Path("theirs.py").write_text("def build(**arguments): ...\n", encoding="utf-8")


def ask(api: Api, *overrides: str, conf: str = "digits") -> Job:
    answer = api.client().post(f"{API}/sweeps", json={"conf": conf, "overrides": [*overrides]})
    assert answer.status_code == 202, answer.text
    with api.service.database.connect() as connection:
        return jobs.find(connection, answer.json()["id"])


def judge(api: Api, job: Job) -> None:
    api.service.runner.check(job)


def test_what_the_operator_has_forbidden_since_does_not_start(uri: str) -> None:
    allows, forbids = service(uri, "access.allowed_targets=[theirs.build]"), service(uri)
    job = ask(allows, *OWN)
    judge(allows, job)
    with pytest.raises(ConfigError, match=r"model._target_=theirs.build: is not among the import paths"):
        judge(forbids, job)
    allows.close()
    forbids.close()


def test_a_config_whose_file_has_changed_since_is_judged_as_it_is_now(uri: str) -> None:
    Path("confs").mkdir()
    mine = Path("confs", "mine.yaml")
    mine.write_text("# Mine.\ndefaults: [digits, _self_]\nname: mine\n", encoding="utf-8")
    api = service(uri, "config_dirs=[confs]")
    job = ask(api, conf="mine")
    judge(api, job)
    mine.write_text("# Mine.\ndefaults: [digits, _self_]\ntracking: {uri: 'http://elsewhere:1'}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tracking.uri=http://elsewhere:1: sweeps of the service are"):
        judge(api, job)
    mine.unlink()
    with pytest.raises(SweepsError, match="mine"):
        judge(api, job)
    api.close()


def test_a_sweep_that_was_recorded_is_judged_as_it_is_recorded(uri: str) -> None:
    config = compose_sweep("digits", [*OWN, f"tracking.uri={uri}"], ConfSearchPath()).as_yaml()
    record_small_sweep(uri, "first", config)
    api = service(uri)
    with writing(api.service.database) as connection:
        asked = Retrain(sweep="first", trial="0", no_register=True)
        retrain = jobs.submit(connection, asked, "first-retrain", user="ada", project="ada", now=1.0)
    with pytest.raises(ConfigError, match=r"model._target_=theirs.build: is not among the import paths"):
        judge(api, retrain)
    with writing(api.service.database) as connection:
        gone = jobs.submit(connection, Resume(sweep="none"), "none", user="ada", project="ada", now=1.0)
    judge(api, gone)  # there is nothing to judge, as its driver will say
    api.close()


def test_schedules_and_their_nights_are_the_operators_own(uri: str) -> None:
    api = service(uri)
    night = Night(schedule="nightly", due=1.0, sweep="night", settings=Nights(), metric="loss", mode="min")
    begin(api.service.database, replace(night, repeats="night-repeats"))
    with writing(api.service.database) as connection:
        both = [
            jobs.submit(connection, Run(conf="digits", overrides=OWN), sweep, user="s", project="s", now=1.0, **options)
            for sweep, options in (("night", {"schedule": "nightly", "due": 1.0}), ("night-repeats", {}))
        ]
    for job in both:
        judge(api, job)
    api.close()


def test_a_schedule_that_only_another_service_fires_keeps_its_rights_nights_window_and_name(uri: str) -> None:
    Path("confs", "schedule").mkdir(parents=True)
    Path("confs", "schedule", "mine.yaml").write_text(NIGHTLY, encoding="utf-8")
    api = service(uri, "config_dirs=[confs]", "schedules=[]", "queue.max_hours=1")
    here, due = api.service, 1e9
    with writing(here.database) as connection:
        fire_now(connection, load_definitions([Path("confs")], due)["mine"], due)
        job = claims.claim(connection, here.config.queue, "other", "other", due)
    assert job is not None
    judge(api, job)
    assert [each.partition("=")[0] for each in here.runner.prepare(job)] == ["seed"]
    record_small_sweep(uri, job.sweep)
    with writing(here.database) as connection:
        jobs.set_values(connection, job.id, state="finished", ended=due + 3500)
    here.promotion_worker.step()
    with here.database.connect() as connection:
        (repeats,) = jobs.of_sweep(connection, repeats_name(job.sweep))
    assert repeats.end_by == due + 4 * 3600  # queue.max_hours counts from the start of each job
    taken = api.client().post(
        f"{API}/schedules", json={"schedule": {"name": "mine", "cron": "@daily", "conf": "digits"}}
    )
    assert (taken.status_code, "mine" in here.scheduler.definitions) == (409, False)
    saved = here.saved_schedules.folder / "mine.yaml"
    saved.parent.mkdir(parents=True)
    saved.write_text("name: mine\nenabled: true\n", encoding="utf-8")
    here.scheduler.refresh()
    saved.unlink()
    saved.mkdir()  # a file that cannot be read
    here.scheduler.refresh()
    assert here.scheduler.of_job(job) is not None
    saved.rmdir()
    Path("confs", "schedule", "mine.yaml").unlink()
    here.scheduler.refresh()
    assert (here.scheduler.of_job(job), here._window_end(job)) == (None, job.end_by)
    api.close()


def test_own_code_is_retrained_without_a_model_that_nobody_asked_for(uri: str) -> None:
    """Its default name may be that of somebody else's model, or none that MLflow takes."""
    allows = service(uri, "access.allowed_targets=[sweeps_train.examples.ray_train_digits.train]")
    config = compose_sweep("ray_train_function", [f"tracking.uri={uri}"], ConfSearchPath()).as_yaml()
    record_small_sweep(uri, "first", config)
    answer = allows.client().post(f"{API}/sweeps/first/retrain", json={"trial": "0"})
    assert answer.status_code == 202, answer.text
    with allows.service.database.connect() as connection:
        assert "--no-register" in jobs.find(connection, answer.json()["id"]).parsed_request.arguments()
    allows.close()
