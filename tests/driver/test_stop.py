"""``stop`` from another terminal: a real sweep, one of its trials, and what may not be stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from continuing import ONE_AT_ONCE, SEARCH, histories, wait_for
from processes import outputs
from recording import CONFIG, POINT, open_recorder
from records import sweep_record, trial_record
from running import Done, start, verb
from small_http import Handler, serving_http
from waiting import wait_until

from sweeps.constants import TAG_ANSWER, TAG_HEARTBEAT, TAG_REQUEST
from sweeps.driver import stop
from sweeps.errors import UnknownName, UserError
from sweeps.report.page.report import make_report
from sweeps.tracking import control_channel
from sweeps.tracking.client import connect
from sweeps.tracking.control_channel import Request, RequestListener, _Channel, send_request
from sweeps.tracking.journal import Tags
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import MlflowIds

pytestmark = pytest.mark.timeout(300)

LONG = ("train.max_steps=900", "train.eval_every=10", "train.log_every=5", "search.num_trials=3")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Its first trial was stopped by itself, the sweep during its second one."""
    folder = tmp_path_factory.mktemp("stop")
    process = start(folder, "run", *SEARCH, *ONE_AT_ONCE, *LONG, "--name=long", "--json")
    wait_for(folder, "long", lambda sweep: sweep.trials and sweep.trials[0].steps >= 20, process)
    document = verb(folder, "stop", "long", "--trial", "0", "--json").document
    assert document["status"] == "running"
    assert document["trials"][0]["state"] == "stopped"
    refused = verb(folder, "stop", "long", "--trial=0", status=2)
    assert "trial 0000 of long is not running: it is stopped" in refused.err
    assert "--trial=7: long has no such trial" in verb(folder, "stop", "long", "--trial=7", status=2).err
    wait_for(folder, "long", lambda sweep: len(sweep.trials) == 2 and sweep.trials[1].steps >= 20, process)
    began = time.monotonic()
    verb(folder, "stop", "long")
    assert time.monotonic() - began < 30  # a few seconds, and as many for a busy machine
    out, err = outputs(process, 60)
    assert "Traceback" not in err
    return Done(folder, process.returncode, err, json.loads(out))


@pytest.mark.slow
def test_a_stopped_sweep_and_its_trials_say_so(stopped: Done) -> None:
    assert stopped.document["status"] == "stopped"
    assert stopped.status == 1  # no trial came to its end
    assert [trial["state"] for trial in stopped.document["trials"]] == ["stopped", "stopped"]
    assert [trial.info.status for trial in stopped.trials()] == ["KILLED", "KILLED"]
    for trial, history in histories(stopped).items():
        checkpoints = sorted((stopped.folder / "outputs/long/trials" / trial).glob("step-*"))
        assert int(checkpoints[-1].name.removeprefix("step-")) >= max(step for step, _ in history)


@pytest.mark.slow
def test_what_does_not_run_cannot_be_stopped(stopped: Done) -> None:
    err = verb(stopped.folder, "stop", "long", status=2).err
    assert "long is not running: it is stopped; `python -m sweeps resume long` continues it" in err


@pytest.mark.slow
def test_a_stopped_sweep_goes_on_but_not_with_the_trial_that_a_person_ended(stopped: Done) -> None:
    before = histories(stopped)["0000"]
    # What was asked of an earlier driver is no request to this one.
    ids = load_sweep(stopped.store, "long").mlflow
    connect(stopped.store).set_tag(ids.run_id, TAG_REQUEST, '{"id": "stale", "verb": "stop", "trial": null}')
    process = start(stopped.folder, "resume", "long")
    wait_for(stopped.folder, "long", lambda sweep: sweep.status == "running" and sweep.trials[1].attempts == 2, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert "its driver was killed" in verb(stopped.folder, "stop", "long", status=2).err
    resumed = verb(stopped.folder, "resume", "long", "--json", within_s=200)
    assert [trial["state"] for trial in resumed.document["trials"]] == ["stopped", "finished", "finished"]
    after = histories(resumed)
    assert [step for step, _ in after["0001"]] == list(range(10, 901, 10))
    assert after["0000"] == before


def test_an_empty_id_is_no_trial_to_stop() -> None:
    """A script may type it with a variable that is not set."""
    running = sweep_record(sweep="long", status="running", trials=[trial_record(0, state="running")])
    assert stop.check_can_stop(running, "0") == "0000"
    with pytest.raises(UnknownName, match="--trial=: long has no such trial; it has 0000"):
        stop.check_can_stop(running, "")


class ReadOnly(Handler):
    """MLflow with its own authentication, to a user who may only read."""

    def answer(self) -> None:
        if self.path.endswith("/runs/set-tag") or "artifact" in self.path:
            self.send(403, b"Permission denied")
        else:
            self.send(200, b"{}")


def test_a_person_who_may_only_read_a_sweep_is_told_that_it_cannot_be_stopped_and_gets_its_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving_http(ReadOnly) as address:
        ids = MlflowIds(tracking_uri=address, experiment_id="1", run_id="r")
        record = sweep_record(sweep="digits-1", status="running", mlflow=ids)
        with pytest.raises(UserError, match=f"digits-1: {address} does not take the request .*403.*permission"):
            stop.request_stop(record)
        assert make_report(record, tmp_path).exists()
    assert "the report is not attached to the run of digits-1 in MLflow: " in caplog.text


def test_a_sweep_whose_clock_is_behind_is_stopped_from_another_machine(
    uri: str, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_channel, "POLL_S", 0.05)
    recorder = open_recorder(uri)
    recorder._delivery.put(Tags("", {TAG_HEARTBEAT: f"{time.time() - 61:.3f}"}))
    wait_until(lambda: load_sweep(uri, "digits-1").status == "interrupted")

    def handle(request: Request) -> str:
        recorder.close(f"{request['verb']}ped")
        return "it ends"

    with RequestListener(recorder.ids, handle):
        _, out, err = typed("stop", "digits-1", f"--tracking-uri={uri}")
    assert "digits-1 stopped" in out, err


def test_a_trial_that_has_not_reported_yet_will_stop_although_nobody_waits_for_it_any_longer(
    uri: str, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_channel, "POLL_S", 0.05)
    monkeypatch.setattr(stop, "ENDED_WITHIN_S", 0.0)
    recorder = open_recorder(uri)
    recorder.trials.start("0003", POINT, CONFIG, 1)
    wait_until(lambda: bool(load_sweep(uri, "digits-1").trials))
    asked = []

    def handle(request: Request) -> str:
        asked.append(request["trial"])
        return "it ends at its next report"

    with RequestListener(recorder.ids, handle):
        status, _, err = typed("stop", "digits-1", "--trial=3", f"--tracking-uri={uri}")
    recorder.close("interrupted")
    assert asked == ["0003"]
    assert status == 1, "2 says that nothing was started"
    assert "trial 0003 of digits-1 did not stop within 0 s; it was asked to" in err


def test_requests_that_reach_a_driver_at_once_are_all_carried_out_and_each_once(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_channel, "POLL_S", 0.05)
    recorder = open_recorder(uri)
    record, channel = load_sweep(uri, "digits-1"), _Channel(recorder.ids, "")
    told, sent, trials = list[str](), list[Request](), ["0003", "0005"]

    def handle(request: Request) -> str:
        told.append(request["trial"])
        return f"{request['trial']} ends at its next report"

    with ThreadPoolExecutor(len(trials)) as terminals:
        asking = []
        for trial in trials:
            asking.append(terminals.submit(send_request, record, {"verb": "stop", "trial": trial}))
            wait_until(lambda trial=trial: channel.read(TAG_REQUEST).get("trial") == trial)
            sent.append(channel.read(TAG_REQUEST))
        with RequestListener(recorder.ids, handle):
            assert [each.result() for each in asking] == [f"{trial} ends at its next report" for trial in trials]
            channel.write(TAG_REQUEST, sent[1])  # from a terminal that has missed the answer
            wait_until(lambda: channel.read(TAG_ANSWER)["id"] == sent[1]["id"])
    recorder.close("interrupted")
    assert told == ["0005", "0003"]
