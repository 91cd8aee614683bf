"""Telling people how sweeps have ended: real webhooks and a real mail server, broken ones, ones that never answer."""

from __future__ import annotations

import email
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request

import pytest
from guarded_app import Stopped
from mailboxes import Mailbox, mail_server, webhook
from postgres import on_both_databases
from pydantic import TypeAdapter, ValidationError
from recording import copy_small_sweeps, open_recorder
from rich.console import Console
from sqlalchemy import Engine, select
from verbs import refusal
from waiting import wait_until

import sweeps
from sweeps.config.nights import Nights
from sweeps.config.notifications import Channel
from sweeps.config.service import Service
from sweeps.constants import TAG_ENDED
from sweeps.driver.terminal_view import PlainView
from sweeps.errors import ConfigError, SweepsError, TrackingUnreachable
from sweeps.plan.plan import make_plan
from sweeps.service.app_context import AppContext
from sweeps.service.database.engine import writing
from sweeps.service.database.tables import deliveries, jobs
from sweeps.service.nights.night import Night, begin, change
from sweeps.service.notify import sending
from sweeps.service.notify.address import addresses, check_address
from sweeps.service.notify.cli_notify import run_and_notify
from sweeps.service.notify.deliveries import MAX_ATTEMPTS
from sweeps.service.notify.message import of_sweep
from sweeps.service.notify.notifier import MAX_WAIT_S, Notifier
from sweeps.service.queue.housekeeping import forget_jobs
from sweeps.service.service_context import ServiceContext
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord


class StandingClock(Stopped):
    """Stands still until somebody waits."""

    time = 1e9

    def wait(self, wake: threading.Event, seconds: float) -> bool:
        self.time += seconds
        return wake.wait(0.01)


@pytest.fixture
def box() -> Iterator[Mailbox]:
    with webhook() as box:
        yield box


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """Address of a store with the sweeps digits-0, digits-1 and digits-2."""
    return copy_small_sweeps(tmp_path)


@pytest.fixture(autouse=True)
def _no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are sent from this process, as their own process sends them: it is not the point of most tests."""
    monkeypatch.setattr("sweeps.service.notify.notifier.send", sending.deliver)


def add_job(engine: Engine, sweep: str, **more: Any) -> None:
    values = {"verb": "run", "request": {}, "user": "me", "project": "vision", "submitted": 1.0, "state": "finished"}
    with writing(engine) as connection:
        connection.execute(jobs.insert().values(**values | {"sweep": sweep, "ended": 1e9} | more))


def notifier(
    engine: Engine, uri: str, clock: StandingClock | None = None, only: Channel | None = None, **urls: str
) -> Notifier:
    """A notifier with a channel for each address, or with one that has settings."""
    channels = [Channel(name=name, url_env=name) for name in urls] if only is None else [only]
    service = ServiceContext(Service(tracking_uri=uri, notifications=channels), engine, clock or StandingClock())
    return Notifier(service, urls, lambda sweep: f"http://here/sweeps/{sweep}")


def states(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [row.state for row in connection.execute(select(deliveries).order_by(deliveries.c.id))]


def test_a_webhook_is_sent_the_best_result_what_it_beats_and_where_to_look(
    engine: Engine, recorded: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.service.notify.notifier.send", sending.send)
    add_job(engine, "digits-1")
    notifier(engine, recorded, team=f"{box.url}/hooks/abc").step()
    assert len(box.received) == 1
    title, *lines = box.received[0]["text"].split("\n")
    assert title == "*digits-1 has ended*"
    assert lines[0] == "Best: eval/loss 0.2, trial 0 (r=16 lr=0.001 optimizer=adamw)"
    assert lines[1] == "Not better than the best of 1 before: 0.2 (digits-0)"
    assert lines[-1] == "<http://here/sweeps/digits-1|sweep>"


def test_a_message_links_to_mlflows_pages_for_people_and_names_no_user(recorded: str) -> None:
    record = load_sweep(recorded, "digits-1")
    ids = replace(record.mlflow, tracking_uri="https://bot:s3cret@mlflow.example.org/team/")
    record = replace(record, mlflow=ids)
    page = f"/#/experiments/{ids.experiment_id}/runs/{ids.run_id}"
    assert of_sweep(record).links == [("MLflow", f"https://mlflow.example.org/team{page}")]
    public = of_sweep(record, mlflow="https://runs.example.org/")  # mlflow_url of the service
    assert public.links == [("MLflow", f"https://runs.example.org{page}")]


def test_apprise_sends_to_all_that_it_knows(engine: Engine, recorded: str, box: Mailbox) -> None:
    add_job(engine, "digits-1")
    with mail_server() as mails:
        mail = f"mailto://127.0.0.1:{mails.port}?from=sweeps@example.com&to=me@example.com&mode=insecure"
        notifier(engine, recorded, mail=mail, hook=f"json://127.0.0.1:{box.port}/abc").step()
    assert states(engine) == ["sent", "sent"]
    assert box.received[0]["title"] == "digits-1 has ended"
    message = email.message_from_string(mails.received[0])
    assert message["Subject"] == "digits-1 has ended"
    text = next(part for part in message.walk() if part.get_content_maintype() == "text").get_payload(decode=True)
    assert b"eval/loss 0.2" in text


@on_both_databases
def test_a_sweep_is_told_of_once_though_two_services_watch(engine: Engine, recorded: str, box: Mailbox) -> None:
    add_job(engine, "digits-1")
    both = [notifier(engine, recorded, team=box.url) for _ in range(2)]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(each.step) for each in both for _ in range(2)]:
            done.result()
    assert len(box.received) == 1


def test_a_broken_channel_is_tried_again_ever_later_and_given_up_with_a_logged_line(
    engine: Engine, recorded: str, caplog: pytest.LogCaptureFixture
) -> None:
    add_job(engine, "digits-1")
    clock = StandingClock()
    with webhook(status=500) as box:
        broken = notifier(engine, recorded, clock, team=f"{box.url}/hooks/S3CRETTOKEN")
        broken.step()
        for tried, wait in enumerate((10, 30, 90, 270, 810, 2430, 3600), start=1):
            clock.time += wait - 1
            broken.step()
            assert box.refused == tried
            clock.time += 1
            broken.step()
        assert (box.refused, states(engine)) == (MAX_ATTEMPTS, ["given up"])
    assert "is given up after 8 attempts: it answered 500" in caplog.text
    with engine.connect() as connection:
        error = connection.execute(select(deliveries.c.error)).scalar()
    assert "S3CRETTOKEN" not in caplog.text + str(error)
    assert "***" in str(error)


@on_both_databases
def test_a_webhook_that_refuses_with_bytes_that_are_no_text_holds_up_no_other_channel(
    engine: Engine, recorded: str, box: Mailbox
) -> None:
    add_job(engine, "digits-1")
    with webhook(status=500, text="\0\0") as broken:
        notifier(engine, recorded, broken=broken.url, team=box.url).step()
    assert states(engine) == ["waiting", "sent"]


def test_a_channel_that_never_answers_holds_nobody_up(
    engine: Engine, recorded: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.service.notify.notifier.send", sending.send)
    monkeypatch.setattr(sending, "SEND_WITHIN_S", 2.0)  # a process starts within it, now or at the next attempt
    add_job(engine, "digits-1")
    released = threading.Event()
    with webhook(hang=released) as silent:
        threaded = notifier(engine, recorded, silent=silent.url, team=box.url)
        threaded.start()
        wait_until(lambda: "sent" in states(engine), 100)  # the silent channel hangs for ever
        threaded.stop()
        released.set()
    assert len(box.received) == 1


@pytest.mark.parametrize(
    ("tag", "event"),
    [
        ("search.stop.wall_hours=2 is used up", "budget"),
        ("search.stop.target=0.3 is reached", "finished"),
        ("16 trials were started", "finished"),
    ],
)
def test_a_spent_budget_is_told_as_one(engine: Engine, uri: str, box: Mailbox, tag: str, event: str) -> None:
    recorder = open_recorder(uri)
    recorder.trials.start("0", {"train.lr": 0.1}, "", 1)
    recorder.trials.end("0", "finished", 5, 1)
    recorder.attach({}, {TAG_ENDED: tag})
    recorder.update({"finished": 1}, [("0", (0.2,), {"train.lr": 0.1})], {"wall_s": 7.0})
    assert not recorder.close("finished")
    add_job(engine, "digits-1")
    only = Channel(name="team", url_env="X", events=[event])
    notifier(engine, uri, only=only, team=box.url).step()
    assert len(box.received) == 1
    assert (tag in box.received[0]["text"]) == tag.startswith("search.")


def test_a_job_that_left_no_record_is_told_with_its_error(engine: Engine, uri: str, box: Mailbox) -> None:
    add_job(engine, "digits-9", state="failed", error="scaling.num_workers=64: only 2 CPUs")
    notifier(engine, uri, team=box.url).step()
    assert box.received[0]["text"].split("\n")[:2] == [
        "*digits-9 has failed*",
        "scaling.num_workers=64: only 2 CPUs",
    ]


def test_a_message_that_failed_while_the_clock_was_a_month_ahead_is_sent_when_it_is_right(
    engine: Engine, uri: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(engine, "digits-9", state="failed", error="no")
    clock = StandingClock()
    told = notifier(engine, uri, clock, team=box.url)
    clock.time += 30 * 86400
    with monkeypatch.context() as patch:
        patch.setattr("sweeps.service.notify.notifier.send", lambda *_: "it answered 503")
        told.step()
    clock.time -= 30 * 86400
    told.step()
    assert states(engine) == ["sent"]


def test_a_record_that_cannot_be_read_holds_up_no_other_message(
    engine: Engine, recorded: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sweep in ("digits-1", "digits-2"):
        add_job(engine, sweep)

    def read(uri: str, sweep: str) -> SweepRecord:
        if sweep == "digits-1":
            raise KeyError("a tag")
        return load_sweep(uri, sweep)

    monkeypatch.setattr("sweeps.service.notify.notifier.load_sweep", read)
    clock = StandingClock()
    told = notifier(engine, recorded, clock, team=box.url)
    told.step()
    assert [each["text"].split("\n")[0] for each in box.received] == ["*digits-2 has ended*"]
    clock.time += MAX_WAIT_S
    told.step()
    assert box.received[1]["text"].split("\n")[:2] == ["*digits-1 has failed*", "Its record cannot be read."]


def test_what_was_cancelled_and_what_others_watch_is_not_told(engine: Engine, recorded: str, box: Mailbox) -> None:
    add_job(engine, "digits-2", state="cancelled")
    add_job(engine, "digits-1", project="speech")
    only = Channel(name="team", url_env="X", projects=["vision"])
    notifier(engine, recorded, only=only, team=box.url).step()
    assert box.received == []
    with engine.connect() as connection:
        assert None not in connection.execute(select(jobs.c.told)).scalars().all()


def test_who_watches_a_schedule_is_told_of_its_resumed_sweep(engine: Engine, recorded: str, box: Mailbox) -> None:
    for sweep, schedule in (("digits-1", "nightly"), ("digits-2", "hourly"), ("digits-0", None)):
        add_job(engine, sweep, makes=sweep, schedule=schedule, told=1.0)
        add_job(engine, sweep, verb="resume")
    only = Channel(name="team", url_env="X", schedules=["nightly"])
    notifier(engine, recorded, only=only, team=box.url).step()
    assert [each["text"].split("\n")[0] for each in box.received] == ["*digits-1 has ended*"]


def test_a_job_with_the_number_of_one_that_was_removed_is_told(engine: Engine, recorded: str, box: Mailbox) -> None:
    told = notifier(engine, recorded, team=box.url)
    add_job(engine, "digits-1")
    told.step()
    assert forget_jobs(engine, 2e9, None) == 1
    add_job(engine, "digits-2", submitted=2.0)  # SQLite gives it the same number
    told.step()
    assert [each["text"].split("\n")[0] for each in box.received] == ["*digits-1 has ended*", "*digits-2 has ended*"]


def no_answer(*_: object) -> SweepRecord:
    raise TrackingUnreachable("no answer")


NIGHT = Night(schedule="nightly", due=5.0, sweep="digits-1", settings=Nights(), metric="eval/loss", mode="min")


@pytest.mark.parametrize(("state", "error"), [("finished", None), ("stopped", "its window ended at 06:00")])
def test_a_night_is_told_when_its_verdict_is_there_and_its_repeats_are_not(
    engine: Engine, recorded: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch, state: str, error: str | None
) -> None:
    night = replace(NIGHT, repeats="digits-1-repeats")
    begin(engine, night)
    add_job(engine, "digits-1", schedule="nightly", due=5.0, state=state, error=error)
    add_job(engine, "digits-1-repeats")
    clock = StandingClock()
    told = notifier(engine, recorded, clock, team=box.url)
    told.step()
    clock.time += MAX_WAIT_S  # an earlier night of the schedule is still repeated
    told.step()
    assert box.received == []
    worse = {"verdict": "regression", "reason": "It is worse by 3 than usual.", "best": 0.2, "decided": clock.time}
    with writing(engine) as connection:
        change(connection, replace(night, **worse))
    with monkeypatch.context() as patch:
        patch.setattr("sweeps.service.notify.notifier.load_sweep", no_answer)
        told.step()
    told.step()
    assert len(box.received) == 1
    assert box.received[0]["text"].startswith("*digits-1 is worse than earlier nights*\nBest: eval/loss 0.2")
    assert "It is worse by 3 than usual." in box.received[0]["text"]


def test_a_night_whose_sweep_failed_is_told_before_its_verdict_unless_it_is_repeated(
    engine: Engine, recorded: str, box: Mailbox
) -> None:
    begin(engine, replace(NIGHT, verdict="repeating"))
    add_job(engine, "digits-1", schedule="nightly", due=5.0, state="failed", error="its data are missing")
    clock = StandingClock()
    told = notifier(engine, recorded, clock, team=box.url)
    clock.time += MAX_WAIT_S
    told.step()
    assert box.received == []
    with writing(engine) as connection:
        change(connection, NIGHT)  # an earlier night of the schedule may be repeated for hours
    told.step()
    assert [
        "digits-1 has failed" in each["text"] and "its data are missing" in each["text"] for each in box.received
    ] == [True]


def test_an_address_is_read_from_where_it_stands_and_every_mistake_is_named(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("https://chat.example.com/hooks/abc\n")
    (tmp_path / "odd").write_text("slakc://S3CRETTOKEN\n")
    good = Channel(name="chat", url_file=str(tmp_path / "address"))
    assert addresses([good]) == {"chat": "https://chat.example.com/hooks/abc"}
    bad = [Channel(name="a", url_env="NO_SUCH_ADDRESS"), Channel(name="b", url_file=str(tmp_path / "odd")), good, good]
    with pytest.raises(ConfigError) as mistakes:
        addresses(bad)
    first, second, third = str(mistakes.value).splitlines()
    assert first.startswith("notifications.0.url_env=NO_SUCH_ADDRESS: there is no such environment variable")
    assert second.startswith(f"notifications.1.url_file={tmp_path}/odd: apprise does not accept this slakc:// address")
    assert third.startswith("notifications.3.name=chat: two channels have this name")
    assert "S3CRETTOKEN" not in str(mistakes.value)


def test_a_services_sweeps_see_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT", "https://chat.example.com/S3CRETTOKEN")
    monkeypatch.setenv("SWEEPS_NOTIFY", "https://chat.example.com/S3CRETTOKEN")
    service = AppContext(Service(notifications=[Channel(name="chat", url_env="CHAT")], schedules=[]))
    assert "S3CRETTOKEN" not in str(service.runner._environment)
    assert service.runner._environment["PATH"] == os.environ["PATH"]
    service.database.dispose()


@pytest.mark.parametrize(
    ("config", "page"),
    [
        (Service(schedules=[]), "http://127.0.0.1:8642/sweeps/a"),
        (Service(schedules=[], host="::1"), "http://[::1]:8642/sweeps/a"),
        (Service(schedules=[], host="::1", public_url="https://sweeps/"), "https://sweeps/sweeps/a"),
    ],
)
def test_a_message_links_to_the_sweeps_page(config: Service, page: str) -> None:
    service = AppContext(config)
    assert service.page_of("a") == page
    service.database.dispose()


def test_a_channel_says_where_its_address_stands_once() -> None:
    for given in ({"name": "a"}, {"name": "a", "url_env": "A", "url_file": "b"}):
        with pytest.raises(ValidationError, match="set where its address is stored"):
            TypeAdapter(Channel).validate_python(given)


MESSAGE = {"event": "finished", "sweep": "s", "title": "t", "lines": [], "links": []}


def processes() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_a_process_that_sends_shows_no_address(box: Mailbox) -> None:
    assert sending.send(f"{box.url}/S3CRETTOKEN", MESSAGE) is None
    released = threading.Event()
    with webhook(hang=released) as silent, Path("log").open("w") as log:
        sending.send_in_background(f"{silent.url}/S3CRETTOKEN", MESSAGE, 1, log)
        wait_until(lambda: "notify.sending" in processes())
        listed = processes()
        released.set()
    assert "S3CRETTOKEN" not in listed


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_message_follows_a_webhook_that_has_moved(box: Mailbox, status: int) -> None:
    with webhook(status, moved_to=f"{box.url}/new") as old:
        assert sending.deliver(f"{old.url}/old", MESSAGE) is None
    assert box.received == [{"text": "*t*"}]


@pytest.mark.parametrize(
    ("status", "moved_to", "is_sent"),
    [(302, "https://host/hook", True), (302, "http://host/result", False), (303, "https://host/hook", False)],
)
def test_a_message_is_sent_again_where_a_webhook_asks_for_https_and_not_where_it_names_a_result(
    status: int, moved_to: str, is_sent: bool
) -> None:
    request = Request("http://host/hook", b"message")
    redirected = sending._SendingAgain().redirect_request(request, None, status, "", {}, moved_to)
    assert redirected is not None
    assert (redirected.full_url, redirected.data) == (moved_to, b"message" if is_sent else None)


def test_a_sweep_by_hand_keeps_its_error_and_its_result_when_no_message_can_be_made(
    recorded: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(["conf=digits"], [], "digits-1", "")  # which has no folder: it could not start

    def fails(*_: Any) -> SweepRecord:
        raise SweepsError("the object store does not answer")

    def ends(*_: Any) -> SweepRecord:
        plan.folder.mkdir(parents=True)
        return load_sweep(recorded, "digits-1")

    def broken(_: str) -> None:
        raise ValueError("a tag that somebody has edited")

    monkeypatch.setattr("sweeps.service.notify.cli_notify.list_sweeps", broken)
    for variable in ("", f"{box.url}/a"):
        monkeypatch.setenv("SWEEPS_NOTIFY", variable)
        with pytest.raises(SweepsError, match="the object store does not answer"):
            run_and_notify(fails, plan, PlainView(Console(stderr=True)))
    assert run_and_notify(ends, plan, PlainView(Console(stderr=True))).status == "finished"
    wait_until(lambda: bool(box.received), 30)
    assert box.received[0]["text"].startswith("*digits-1 has failed*")


def test_a_sweep_by_hand_tells_the_addresses_in_its_environment_and_does_not_wait(
    recorded: str, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPS_NOTIFY", f"{box.url}/a json://127.0.0.1:{box.port}/b")
    plan = make_plan(["conf=digits"], [], "digits-1", "")

    def story(*_: Any) -> SweepRecord:
        plan.folder.mkdir(parents=True)
        return load_sweep(recorded, "digits-1")

    with PlainView(Console(stderr=True)) as view:
        assert run_and_notify(story, plan, view).sweep == "digits-1"
        wait_until(lambda: len(box.received) == 2, 30)
    assert {each.get("title", "*digits-1 has ended*").strip("*") for each in box.received} == {"digits-1 has ended"}
    assert (plan.folder / "notifications.log").read_text() == ""


@pytest.mark.parametrize("address", ["https://", "https://[chat/x", "HTTPS://chat:port/x", "https://chat:70000/x"])
def test_the_address_of_a_webhook_has_a_host_and_a_port_that_is_a_number(address: str) -> None:
    check_address("HTTPS://chat.example.com:8443/x", "url")
    with pytest.raises(ConfigError, match="url: the address has no host, or an invalid port"):
        check_address(address, "url")


def test_a_wrong_address_is_known_before_a_sweep_by_hand_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPS_NOTIFY", "slakc://S3CRETTOKEN")
    with pytest.raises(ConfigError, match=r"SWEEPS_NOTIFY: apprise does not accept this slakc:// address") as mistake:
        sweeps.run("digits", name="never")
    assert refusal("run", "conf=digits", "--dry-run") == str(mistake.value)
    assert "S3CRETTOKEN" not in str(mistake.value)
    assert not Path("outputs", "never").exists()
