"""`--server`: a verb prints what it prints beside the store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from composing import composed
from mailboxes import webhook
from promises import listed, printed_json, unnamed
from recording import open_recorder, record_small_sweep
from sqlalchemy import delete
from stores import RecordedStore
from verbs import printed, refusal
from waiting import wait_until
from web_server import WebServer, served

from sweeps.cli import run_command
from sweeps.config.nights import Nights
from sweeps.config.service import Queue
from sweeps.errors import TrackingUnreachable, UnknownName, UserError
from sweeps.files.whole_files import write_json
from sweeps.operations.remote import Remote
from sweeps.service.auth import tokens
from sweeps.service.database import tables
from sweeps.service.database.engine import writing
from sweeps.service.nights.night import Night, begin
from sweeps.service.queue import claims, jobs
from sweeps.tracking.reader import load_sweep

Run = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    def record(uri: str) -> None:
        config = composed("digits").as_yaml()
        for name, status in (("digits-1", "finished"), ("modèle-1", "finished"), ("digits-3", "interrupted")):
            record_small_sweep(uri, name, config, status)

    return RecordedStore(tmp_path_factory.mktemp("sweeps"), record)


@pytest.fixture
def uri(recorded: RecordedStore, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(recorded.folder)
    return recorded.restore()


@pytest.fixture
def serving(uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with served(uri) as server:
        yield server


def test_a_verb_prints_the_same_through_a_server_also_of_a_sweep_with_letters_of_any_alphabet(
    serving: WebServer, capsys: Run
) -> None:
    night = Night(
        schedule="nightly", due=1e9, sweep="digits-1", settings=Nights(), metric="eval/loss", mode="min", best=0.2
    )
    begin(serving.service.database, night)
    for arguments in (
        ["list", "--json"],
        ["show", "digits-1", "--json"],
        ["show", "digits-1", "--watch"],
        ["show", "modèle-1", "--json"],
        ["best", "modèle-1"],
        ["best", "digits-1", "--trial", "3"],
        ["show", "digits-3", "--trial", "3"],
        ["compare", "digits-1", "modèle-1"],
        ["clean", "digits-1", "--dry-run"],
        ["run", "conf=digits", "search.num_trials=3", "--name=mine", "--dry-run"],
        ["retrain", "digits-1", "--name=again", "--dry-run", "--json"],
        ["reproduce", "digits-1", "--trial", "0", "--dry-run", "--json"],
        ["conf", "search"],
        ["schedule", "list", "--json"],
        ["schedule", "nights", "nightly"],
    ):
        here = printed(capsys, *arguments)
        assert here
        assert printed(capsys, *arguments, "--server", serving.url) == here, arguments
    plan = ["run", "conf=digits", "--name=modèle-2", 'search.warm_start=["modèle-1"]', "--dry-run"]
    for where in ([], ["--server", serving.url]):
        said = str(run_command([*plan, *where])[1])
        assert "is not the name" not in said, "letters of any alphabet are one everywhere"
        assert "pattern" not in said


def test_a_trial_is_trained_again_if_the_environment_names_an_object_store_whose_record_is_copied_here(
    uri: str, monkeypatch: pytest.MonkeyPatch, capsys: Run
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "s3://bucket/sweeps")
    assert f"MLflow    {uri}\n" in printed(capsys, "retrain", "digits-1", "--dry-run", f"--tracking-uri={uri}")


def test_json_has_the_keys_that_are_promised_and_a_new_one_is_listed(uri: str) -> None:
    found, known = set(printed_json(uri, "digits-1", "modèle-1")), listed("json")
    assert unnamed(known - found) == [], "name them in docs/upgrading.md"
    assert sorted(found - known) == [], "`python tests/promises.py` adds them"


def test_a_mistake_has_the_same_words_and_status_through_a_server(serving: WebServer) -> None:
    for arguments in (
        ["show", "digits-9"],
        ["run", "conf=digits", "serach.num_trials=3"],
        ["run", "conf=digitz"],
        ["run"],
        ["extend", "digits-1", "train.lr=3"],
        ["stop", "digits-1"],
        ["clean"],
        ["best", "digits-1", "--trial", "77"],
        ["compare", "digits-1", "digits-1"],
    ):
        here = run_command(arguments)
        assert here[0] == 2
        there = run_command([*arguments, "--server", serving.url])
        assert there[0] == here[0], (arguments, there)
        assert str(there[1])[:25] == str(here[1])[:25]


def test_what_is_only_here_and_a_server_are_not_given_together(serving: WebServer) -> None:
    error = refusal("list", "--server", serving.url, "--tracking-uri", "sqlite:///mlflow.db")
    assert "--server and --tracking-uri: the service at" in str(error)
    assert run_command(["run", "conf=mine.yaml", "--server", serving.url])[0] == 2
    assert "is `python -m sweeps serve` running there?" in refusal("list", "--server", "http://127.0.0.1:1")
    assert run_command(["list", "--server", "127.0.0.1:8642"])[0] == 2


def test_a_report_and_an_export_come_to_this_machine(serving: WebServer, capsys: Run, tmp_path: Path) -> None:
    refused = refusal("best", "digits-1", "--export", str(tmp_path / "best.txt"), "--server", serving.url)
    assert "must end in .yaml" in refused
    page = Path(printed(capsys, "report", "digits-1", "--output", "mine", "--server", serving.url).strip())
    assert page.parent == Path("mine")
    assert "digits-1" in page.read_text()


def test_a_submitted_sweep_waits_and_is_stopped_or_followed_until_it_is_cancelled(
    serving: WebServer, capsys: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.cli.remote.POLL_EVERY_S", 0.1)
    name = printed(capsys, "run", "conf=digits", "--name=mine", "--detach", "--server", serving.url)
    assert name == "mine\n"
    for verb in (["show"], ["show", "--watch"], ["logs"], ["resume"]):
        assert "mine has no record yet: its job 1 is queued" in refusal(*verb, "mine", "--server", serving.url)
    assert run_command(["list", "--server", serving.url])[0] == 0
    assert "mine has no record yet: its job 1 is queued" in capsys.readouterr().err
    assert printed(capsys, "stop", "mine", "--server", serving.url) == "mine was removed from the queue\n"
    assert "mine has no record: its job 1 is cancelled" in refusal("show", "mine", "--server", serving.url)
    with writing(serving.service.database) as connection:
        assert [job.state for job in jobs.of_sweep(connection, "mine")] == ["cancelled"]
    done: list[tuple[int, str | None]] = []
    arguments = ["run", "conf=digits", "--name=yours", "--server", serving.url]
    thread = threading.Thread(target=lambda: done.append(run_command(arguments)), daemon=True)
    thread.start()

    def cancelled() -> bool:
        with writing(serving.service.database) as connection:
            job = jobs.creator(connection, "yours")
            return job is not None and jobs.cancel(connection, job.id, time.time()).has_ended

    wait_until(cancelled)
    thread.join(20)
    assert done == [(2, "yours: was removed from the queue before it started")]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_sweep_that_is_stopped_while_it_starts_is_not_said_to_have_waited(
    serving: WebServer, capsys: Run, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    monkeypatch.setattr("sweeps.operations.remote.STOP_POLL_S", 0.1)
    printed(capsys, "run", "conf=digits", "--name=mine", "--detach", "--server", serving.url)
    with writing(serving.service.database) as connection:
        assert claims.claim(connection, Queue(), "other", "other", time.time()) is not None
    thread = threading.Thread(target=run_command, args=(["stop", "mine", "--server", serving.url],), daemon=True)
    thread.start()

    def ended() -> bool:
        with writing(serving.service.database) as connection:
            job = jobs.of_sweep(connection, "mine")[0]
            if job.stop_asked is None:
                return False
            if is_kept:
                jobs.set_values(connection, job.id, state="cancelled", ended=time.time())
            else:  # what a service of 0.2 answers: it knows the jobs of recorded sweeps only
                connection.execute(delete(tables.jobs).where(tables.jobs.c.id == job.id))
            return True

    wait_until(ended)
    thread.join(20)
    said = capsys.readouterr()
    assert "was stopped before anything was recorded" in (said.out if is_kept else said.err)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["run", "conf=digits"], "None"),
        (
            ["reproduce", "digits-1", "--trial=0"],
            "mine is failed, and was not compared with digits-1",
        ),
    ],
)
def test_a_sweep_is_followed_until_the_service_knows_how_it_ended(
    serving: WebServer, monkeypatch: pytest.MonkeyPatch, command: list[str], error: str
) -> None:
    """Its record may be from before the end; that of a reproduction whose driver was restarted is an ordinary one."""
    monkeypatch.setattr("sweeps.cli.remote.POLL_EVERY_S", 0.1)
    monkeypatch.setattr("sweeps.service.record_cache.FRESH_S", 0.0)
    service = serving.service
    with ThreadPoolExecutor(1) as terminal:
        done = terminal.submit(run_command, [*command, "--name=mine", "--server", serving.url])

        def creator() -> jobs.Job | None:
            with writing(service.database) as connection:
                return jobs.creator(connection, "mine")

        wait_until(creator)
        job, recorder = creator(), open_recorder(service.config.tracking_uri, "mine")
        assert job is not None
        control = service.runner.control_folder(job)
        control.mkdir(parents=True)
        write_json(control / "outcome.json", {"status": 1, "error": None, "document": {"sweep": "mine"}})
        with writing(service.database) as connection:
            jobs.set_values(connection, job.id, state="failed")
        wait_until(lambda: done.done() or any(each._last for each in service.records._sweeps.values()))
        recorder.close("failed")
        status, said = done.result()
    assert (status, str(said)[: len(error)]) == (1, error)


def test_the_token_comes_from_the_environment_or_a_file(
    serving: WebServer, capsys: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with writing(serving.service.database) as connection:
        _, secret = tokens.create(connection, "root", "admin", time.time())
    assert "the command line takes it from SWEEPS_TOKEN" in refusal("list", "--server", serving.url)
    monkeypatch.setenv("SWEEPS_TOKEN", secret)
    monkeypatch.setenv("SWEEPS_SERVER", serving.url)
    assert len(json.loads(printed(capsys, "list", "--json"))) == 3
    monkeypatch.delenv("SWEEPS_TOKEN")
    (tmp_path / "token").write_text(f"{secret}\n")
    monkeypatch.setenv("SWEEPS_TOKEN_FILE", str(tmp_path / "token"))
    assert len(json.loads(printed(capsys, "list", "--json"))) == 3
    monkeypatch.delenv("SWEEPS_TOKEN_FILE")
    monkeypatch.setenv("SWEEPS_TOKEN", f"{secret}\r\n")  # a variable that was made from a file
    assert len(json.loads(printed(capsys, "list", "--json"))) == 3
    monkeypatch.setenv("SWEEPS_TOKEN", f"“{secret}”")
    status, error = run_command(["list"])
    assert (status, str(error)[:12], secret in str(error)) == (2, "SWEEPS_TOKEN", False)


def test_as_many_firings_are_listed_through_a_server_as_here(serving: WebServer, capsys: Run) -> None:
    printed(capsys, "schedule", "next", "-n", "10000", "--json", "--server", serving.url)


def test_the_registration_of_a_model_may_take_longer_than_any_other_answer(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.operations.remote.TIMEOUTS_S", (10.0, 1e-6))
    record = load_sweep(uri, "digits-1")
    with (
        webhook(422, text='{"detail": "it has no checkpoint"}') as service,
        pytest.raises(UserError, match="no checkpoint"),
    ):
        Remote(service.url).register(record, record.trials[0], "digits", "champion", merged=False)


@pytest.mark.parametrize(
    ("status", "kind"), [(200, UserError), (404, UnknownName), (502, TrackingUnreachable), (504, TrackingUnreachable)]
)
def test_an_answer_of_a_proxy_is_told_from_one_of_the_service(status: int, kind: type[UserError]) -> None:
    with webhook(status, text="<html>") as proxy, pytest.raises(UserError) as caught:
        Remote(f"http://127.0.0.1:{proxy.port}").post("sweeps")
    assert (type(caught.value), f"status {status}" in str(caught.value)) == (kind, True)
