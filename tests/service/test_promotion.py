"""Nights that build on each other: what tonight learns from, who is champion, what is told as worse."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from postgres import on_both_databases
from recording import open_recorder
from sqlalchemy import Engine, event
from stores import copy_recorded

from sweeps.compose.overrides import parse_values
from sweeps.config.nights import Champion, Nights
from sweeps.config.objectives import Objectives
from sweeps.config.service import Service
from sweeps.constants import NIGHTS_ARTIFACT, TAG_SWEEP, TAG_TRIAL
from sweeps.errors import SweepsError, TrackingUnreachable
from sweeps.plan.plan import make_plan
from sweeps.registry.model_owners import ModelRights
from sweeps.service.auth.models import check_model
from sweeps.service.clock import Clock
from sweeps.service.database.engine import open_database, writing
from sweeps.service.nights.champion_version import champion_of
from sweeps.service.nights.command_lines import CommandLines
from sweeps.service.nights.night import Night, claim, find, of_schedule
from sweeps.service.nights.preparation import prepare
from sweeps.service.nights.promotion_worker import PromotionWorker
from sweeps.service.nights.verdict import after_repeats
from sweeps.service.queue import jobs
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.job_requests import Run
from sweeps.service.surroundings import Surroundings
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.reader import load_sweep

TOKENS = ["conf=digits", "search=random", "space=none", "train.lr=tag(log, interval(1e-4, 1e-1))"]
ACCURACY = Objectives(("eval/accuracy",), ("max",))
CHAMPION = Champion(model="digits")
ONE_LOOK = Champion(model="digits", repeats=0)

Trials = Sequence[tuple[dict[str, Any], float]]


@pytest.fixture
def judge(engine: Engine, uri: str, monkeypatch: pytest.MonkeyPatch) -> PromotionWorker:
    """Makes no reports, which take seconds."""
    monkeypatch.setattr(CommandLines, "report", lambda *_: None)
    return new_judge(engine, uri)


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service says where its sweeps are recorded, and not its environment."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///nowhere.db")


def new_judge(engine: Engine, uri: str, dead_after_s: float = 30) -> PromotionWorker:
    heartbeat = Heartbeat(engine, Clock(), dead_after_s)
    return PromotionWorker(Surroundings(Service(tracking_uri=uri), engine), heartbeat)


def record(uri: str, sweep: str, trials: Trials, tokens: Sequence[str] = TOKENS) -> None:
    """A sweep that has ended, as its driver would have recorded it."""
    recorder = open_recorder(uri, sweep, ACCURACY, config=config_of(*tokens), command="command")
    for number, (point, value) in enumerate(trials):
        recorder.trials.start(f"{number:04}", point, "", 1)
        recorder.trials.log(f"{number:04}", 10, {"eval/accuracy": value})
        recorder.trials.end(f"{number:04}", "finished", 10, 1)
    best = max(range(len(trials)), key=lambda number: trials[number][1])
    recorder.update({"finished": len(trials)}, [(f"{best:04}", (trials[best][1],), trials[best][0])], {"wall_s": 60.0})
    assert not recorder.close("finished")


@functools.cache
def config_of(*tokens: str) -> str:
    return make_plan(tokens, [], None, "").composition.as_yaml()


def make_champion(uri: str, sweep: str, trial: str) -> str:
    """As `best --register` does; the version."""
    client = MlflowClient(uri)
    if not client.search_registered_models(f"name='{CHAMPION.model}'"):
        client.create_registered_model(CHAMPION.model)
    run = next(each for each in load_sweep(uri, sweep).trials if each.trial == trial).run_id
    tags = {TAG_SWEEP: sweep, TAG_TRIAL: trial}
    version = client.create_model_version(CHAMPION.model, f"runs:/{run}/model", run, tags=tags).version
    client.set_registered_model_alias(CHAMPION.model, CHAMPION.alias, version)
    return str(version)


def record_champion(uri: str) -> None:
    record(uri, "by-hand", [(at(0.001), 0.9)])
    make_champion(uri, "by-hand", "0000")


def night_of(engine: Engine, uri: str, number: int, settings: Nights, trials: Trials) -> str:
    """A night of the schedule that has ended: its name."""
    name = f"night-{number}"
    begin_night(engine, number, settings)
    record(uri, name, trials)
    end_job(engine, name)
    return name


def begin_night(engine: Engine, number: int, settings: Nights, tokens: Sequence[str] = TOKENS) -> list[str]:
    """Begin a night; return the overrides that its sweep gets from the nights before."""
    name = f"night-{number}"
    with writing(engine) as connection:
        request = Run(conf="digits", overrides=list(tokens[1:]))
        job = jobs.submit(connection, request, name, user="me", project="p", now=1.0, schedule="nightly", due=number)
    return prepare(engine, job, settings, f"sqlite:///{Path.cwd()}/mlflow.db", [])  # the fixture's ``uri``


def end_job(engine: Engine, sweep: str) -> None:
    with writing(engine) as connection:
        job = jobs.of_sweep(connection, sweep)[0]
        connection.execute(jobs._jobs.update().where(jobs._jobs.c.id == job.id).values(state="finished", ended=2.0))


def night(engine: Engine, name: str) -> Night:
    with engine.connect() as connection:
        found = find(connection, name)
    assert found is not None
    return found


def at(lr: float) -> dict[str, Any]:
    return {"train.lr": lr}


# --- before a night -----------------------------------------------------------------------------------------------


def test_a_night_learns_from_the_newest_nights_before_and_tries_the_champion_again(engine: Engine, uri: str) -> None:
    settings = Nights(warm_start=2, champion=CHAMPION)
    for number, lr in enumerate((0.0015, 0.002, 0.003), start=1):
        night_of(engine, uri, number, settings, [(at(lr), 0.9), (at(2 * lr), 0.8)])
    version = make_champion(uri, "night-2", "0000")
    overrides = begin_night(engine, 4, settings)
    assert parse_values(overrides[1:]) == {
        "search.warm_start": ["night-3", "night-2"],
        "search.points": [at(0.002)],
    }
    assert (night(engine, "night-4").tried, night(engine, "night-4").point) == (version, at(0.002))
    plan = make_plan([*TOKENS, *overrides, f"tracking.uri={uri}"], [], None, "")
    assert plan.points.first()[-1] == at(0.002)
    assert [each.name for each in plan.warm_start] == ["night-3", "night-2"]


def test_the_configs_own_values_are_trained_on_the_first_night_and_again_only_after_a_change(
    engine: Engine, uri: str
) -> None:
    """Else a night of two trials would train those and the champion, and never a new point."""
    settings = Nights(champion=CHAMPION)
    tokens = [*TOKENS, "train.lr=0.002", "space.train.lr={type: float, low: 1e-4, high: 1e-1, log: true}"]

    def first_points(number: int, tokens: Sequence[str]) -> list[dict[str, Any]]:
        overrides = begin_night(engine, number, settings, tokens)
        return make_plan([*tokens, *overrides, f"tracking.uri={uri}"], [], None, "").points.first()

    assert first_points(1, tokens) == [at(0.002)]
    record(uri, "night-1", [(at(0.002), 0.8), (at(0.01), 0.9)], tokens)
    end_job(engine, "night-1")
    make_champion(uri, "night-1", "0001")
    assert first_points(2, tokens) == [at(0.01)]
    changed = [*tokens, "train.lr=0.003"]
    assert first_points(3, changed) == [at(0.003), at(0.01)]


def test_a_night_that_is_prepared_again_begins_once(engine: Engine, uri: str) -> None:
    settings = Nights(champion=CHAMPION)
    first = begin_night(engine, 1, settings)
    with engine.connect() as connection:
        job = jobs.of_sweep(connection, "night-1")[0]
    assert prepare(engine, job, settings, uri, []) == first
    with engine.connect() as connection:
        assert [each.sweep for each in of_schedule(connection, "nightly")] == ["night-1"]


def test_a_night_has_a_seed_of_its_own_unless_its_config_has_one(engine: Engine) -> None:
    seeds = [begin_night(engine, number, Nights()) for number in (1, 2)]
    assert [len(each) for each in seeds] == [1, 1]
    assert seeds[0] != seeds[1]
    assert begin_night(engine, 3, Nights(), [*TOKENS, "seed=7"]) == []
    assert begin_night(engine, 4, Nights(), [*TOKENS, "seed=choice(1,2)"]) == []


def test_nights_of_another_space_or_metric_are_not_learned_from(engine: Engine, uri: str) -> None:
    settings = Nights()
    night_of(engine, uri, 1, settings, [(at(0.001), 0.9)])
    night_of(engine, uri, 2, settings, [(at(5.0), 0.9)])
    assert parse_values(begin_night(engine, 3, settings))["search.warm_start"] == ["night-1"]
    other = [*TOKENS, "search.metric=eval/loss", "search.mode=min"]
    assert "search.warm_start" not in parse_values(begin_night(engine, 4, settings, other))


def test_a_champion_outside_of_tonights_space_stays_and_says_why(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    settings = Nights(champion=CHAMPION)
    record(uri, "by-hand", [(at(5.0), 0.9)])
    make_champion(uri, "by-hand", "0000")
    assert night_of(engine, uri, 1, settings, [(at(0.01), 0.99)])
    judge.step()
    judged = night(engine, "night-1")
    assert judged.verdict == "kept"
    assert "version 1, has train.lr=5.0, which is outside of tonight's space; widen it" in str(judged.reason)


@pytest.mark.parametrize("reads", ["preparation.load_earlier", "champion_version.load_sweep"])
def test_a_night_waits_for_an_mlflow_that_stops_answering_while_it_is_prepared(
    engine: Engine, uri: str, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    settings = Nights(champion=CHAMPION)
    night_of(engine, uri, 1, settings, [(at(0.0015), 0.9), (at(0.003), 0.8)])
    make_champion(uri, "night-1", "0000")
    monkeypatch.setattr(f"sweeps.service.nights.{reads}", no_answer)
    with pytest.raises(TrackingUnreachable):
        begin_night(engine, 2, settings)


def no_answer(*_: object) -> None:
    raise TrackingUnreachable("no answer")


class WithoutRegistry(BaseHTTPRequestHandler):
    """A server whose database restarts when it is asked about models."""

    def do_POST(self) -> None:
        text = b"{}" if "model" not in self.path else b"<h1>503</h1>"
        self.send_response(200 if text == b"{}" else 503)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


def test_a_registry_that_does_not_answer_is_waited_for() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), WithoutRegistry) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            uri, rights = f"http://127.0.0.1:{server.server_port}", ModelRights("ada", "p")
            with pytest.raises(TrackingUnreachable, match="503"):
                champion_of(uri, CHAMPION)
            with pytest.raises(TrackingUnreachable, match="503"):
                check_model(uri, "digits", rights, lambda _: True, adopt=False)
        finally:
            server.shutdown()


# --- after a night ------------------------------------------------------------------------------------------------


def test_the_first_night_has_its_best_repeated_and_makes_it_champion_once(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    night_of(engine, uri, 1, Nights(champion=CHAMPION), [(at(0.001), 0.9), (at(0.01), 0.95)])
    judge.step()
    assert night(engine, "night-1").verdict == "repeating"
    repeat(engine, uri, "night-1", {0.01: [0.93, 0.95, 0.94]})
    # A service died after it had registered the best of them, and before it wrote that down.
    version = make_champion(uri, "night-1-repeats", "0001")
    judge.step()
    judge.step()
    judged = night(engine, "night-1")
    assert (judged.verdict, judged.version, judged.challenger) == ("first", version, "0001")
    assert judged.noise == pytest.approx(0.01)
    assert judged.challengers == (0.93, 0.95, 0.94)
    assert judged.wall_s == 120.0
    assert len(MlflowClient(uri).search_model_versions("name='digits'")) == 1


def test_a_champion_that_somebody_makes_while_a_challenger_is_trained_again_stays(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    night_of(engine, uri, 1, Nights(champion=CHAMPION), [(at(0.001), 0.9), (at(0.01), 0.95)])
    judge.step()
    record(uri, "by-hand", [(at(0.02), 0.99)])
    version = make_champion(uri, "by-hand", "0000")
    repeat(engine, uri, "night-1", {0.01: [0.93, 0.95, 0.94]})
    judge.step()
    judged = night(engine, "night-1")
    assert (judged.verdict, judged.version) == ("kept", version)
    assert f"version {version} became it meanwhile, and was not compared" in str(judged.reason)
    assert str(MlflowClient(uri).get_model_version_by_alias("digits", "champion").version) == version


def test_a_challenger_that_is_better_by_more_than_noise_becomes_champion(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    copy_recorded("champion-by-hand", record_champion, Path.cwd())  # the folder of ``uri``
    night_of(engine, uri, 1, Nights(champion=CHAMPION), [(at(0.001), 0.91), (at(0.01), 0.95)])
    judge.step()
    repeat(engine, uri, "night-1", {0.001: [0.90, 0.91, 0.92], 0.01: [0.94, 0.95, 0.96]})
    make_champion(uri, "night-1-repeats", "0005")
    MlflowClient(uri).set_registered_model_alias("digits", "champion", "1")  # the alias was not moved yet
    judge.step()
    judged = night(engine, "night-1")
    assert (judged.verdict, judged.version) == ("promoted", "2")
    assert (judged.champions, judged.champion, judged.tried) == ((0.90, 0.91, 0.92), 0.91, "1")
    assert str(MlflowClient(uri).get_model_version_by_alias("digits", "champion").version) == "2"


def test_a_challenger_that_is_not_better_by_more_than_noise_leaves_the_champion(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    copy_recorded("champion-by-hand", record_champion, Path.cwd())  # the folder of ``uri``
    night_of(engine, uri, 1, Nights(champion=CHAMPION), [(at(0.001), 0.91), (at(0.01), 0.95)])
    judge.step()
    repeat(engine, uri, "night-1", {0.001: [0.90, 0.93, 0.96], 0.01: [0.92, 0.94, 0.97]})
    judge.step()
    judged = night(engine, "night-1")
    assert (judged.verdict, judged.version) == ("kept", "1")
    assert "is not better by more than noise" in str(judged.reason)


EQUAL = {"champions": (0.91, 0.91), "challengers": (0.911, 0.911), "noise": 0.0}


@pytest.mark.parametrize(
    ("values", "min_change", "verdict", "words"),
    [
        (EQUAL, 0.0, "promoted", "more than rounding; equal trainings gave equal values, so that no larger difference"),
        (EQUAL, 0.01, "kept", "0.911 against the champion's 0.91 on tonight's data is not better by more than nights."),
        ({**EQUAL, "noise": 0.01}, 0.0, "kept", "is not better by more than noise"),
        ({**EQUAL, "challengers": ()}, 0.0, "kept", "no repeat of the challenger finished"),
        ({**EQUAL, "champions": ()}, 0.0, "kept", "none of its repeats finished"),
        ({**EQUAL, "noise": None}, 0.0, "kept", "too few repeats finished to measure the noise"),
    ],
)
def test_a_verdict_on_repeats_says_which_difference_counts_or_what_is_missing(
    values: dict[str, Any], min_change: float, verdict: str, words: str
) -> None:
    settings = Champion(model="digits", min_change=min_change)
    sweep: dict[str, Any] = {"schedule": "s", "due": 1.0, "sweep": "night", "metric": "eval/accuracy", "mode": "max"}
    found, reason = after_repeats(Night(**sweep, settings=Nights(champion=settings), tried="1", **values), settings)
    assert (found, words in reason) == (verdict, True)


def test_nothing_is_repeated_when_the_champion_is_best(engine: Engine, uri: str, judge: PromotionWorker) -> None:
    copy_recorded("champion-by-hand", record_champion, Path.cwd())  # the folder of ``uri``
    night_of(engine, uri, 1, Nights(champion=CHAMPION), [(at(0.001), 0.96), (at(0.01), 0.95)])
    judge.step()
    judged = night(engine, "night-1")
    assert (judged.verdict, judged.champion, judged.repeats) == ("kept", 0.96, None)


def test_without_repeats_the_nights_own_trials_and_the_given_noise_decide(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    settings = Nights(champion=ONE_LOOK, noise=0.01, regression=None)
    copy_recorded("champion-by-hand", record_champion, Path.cwd())  # the folder of ``uri``
    night_of(engine, uri, 1, settings, [(at(0.001), 0.91), (at(0.01), 0.95)])
    make_champion(uri, "night-1", "0001")
    MlflowClient(uri).set_registered_model_alias("digits", "champion", "1")
    judge.step()
    assert (night(engine, "night-1").verdict, night(engine, "night-1").version) == ("promoted", "2")


@pytest.mark.slow
def test_a_night_that_is_worse_is_told_promotes_nobody_and_is_in_its_report(engine: Engine, uri: str) -> None:
    judge = new_judge(engine, uri)
    settings = Nights(champion=ONE_LOOK, noise=0.01)
    night_of(engine, uri, 1, settings, [(at(0.01), 0.95)])
    make_champion(uri, "night-1", "0000")
    judge.step()
    night_of(engine, uri, 2, settings, [(at(0.01), 0.80), (at(0.02), 0.90)])
    judge.step()
    judged = night(engine, "night-2")
    assert (judged.verdict, judged.version) == ("regression", "1")
    assert judged.reason == (
        "Its best eval/accuracy, 0.9, is worse than the usual 0.95 by 0.05, and nights differ by up to 0.03. Nothing "
        "is promoted."
    )
    run = load_sweep(uri, "night-2").mlflow.run_id
    recorded = json.loads(str(read_text(uri, run, NIGHTS_ARTIFACT)))
    assert [each["verdict"] for each in recorded["nights"]] == ["kept", "regression"]
    report = str(read_text(uri, run, "report/report.html"))
    assert "The nights of nightly: each night" in report
    assert "report/nights.png" in [each.path for each in MlflowClient(uri).list_artifacts(run, "report")]


@pytest.mark.slow
def test_nights_are_judged_in_their_order_against_the_champion_of_now(
    engine: Engine, uri: str, judge: PromotionWorker
) -> None:
    """The second night began while the first one's repeats ran: it knew no champion then."""
    settings = Nights(champion=CHAMPION)
    night_of(engine, uri, 1, settings, [(at(0.001), 0.91)])
    night_of(engine, uri, 2, settings, [(at(0.01), 0.95)])
    judge.step()
    assert [night(engine, f"night-{each}").verdict for each in (1, 2)] == ["repeating", "running"]
    repeat(engine, uri, "night-1", {0.001: [0.90, 0.91, 0.92]})
    make_champion(uri, "night-1-repeats", "0002")
    judge.step()
    assert [night(engine, f"night-{each}").verdict for each in (1, 2)] == ["first", "repeating"]
    assert night(engine, "night-2").point == at(0.001)
    repeat(engine, uri, "night-2", {0.001: [0.90, 0.91, 0.92], 0.01: [0.90, 0.91, 0.92]})
    judge.step()
    assert night(engine, "night-2").verdict == "kept"


def test_there_is_no_verdict_while_mlflow_does_not_tell_the_point_of_a_new_champion(
    engine: Engine, uri: str, judge: PromotionWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    night_of(engine, uri, 1, Nights(champion=CHAMPION), [(at(0.001), 0.91), (at(0.01), 0.95)])
    record(uri, "by-hand", [(at(0.001), 0.9)])
    make_champion(uri, "by-hand", "0000")
    with monkeypatch.context() as outage:
        outage.setattr("sweeps.service.nights.champion_version.load_sweep", no_answer)
        judge.step()
    assert night(engine, "night-1").verdict == "running"
    judge.step()
    assert night(engine, "night-1").verdict == "repeating"


def test_a_night_without_a_record_or_a_value_has_failed(engine: Engine, uri: str, judge: PromotionWorker) -> None:
    begin_night(engine, 1, Nights())
    judge.step()
    assert night(engine, "night-1").verdict == "running"
    end_job(engine, "night-1")
    judge.step()
    assert (night(engine, "night-1").verdict, night(engine, "night-1").reason) == ("failed", "It left no record.")


@on_both_databases
def test_a_night_is_judged_by_one_service_until_that_one_dies(engine: Engine, uri: str, judge: PromotionWorker) -> None:
    night_of(engine, uri, 1, Nights(), [(at(0.01), 0.95)])
    first, second = Heartbeat(engine, Clock(), 30), judge
    assert claim(engine, night(engine, "night-1"), first.service, first.silent_since) is not None
    second.step()
    assert night(engine, "night-1").verdict == "running"
    first.leave()
    second.step()
    assert night(engine, "night-1").verdict == "measured"


def repeat(engine: Engine, uri: str, sweep: str, values: dict[float, list[float]]) -> None:
    """Train what the judge has queued, in the order in which its points say."""
    with engine.connect() as connection:
        job = jobs.of_sweep(connection, f"{sweep}-repeats")[0]
    asked = job.parsed_request
    assert isinstance(asked, Run)
    plan = make_plan([f"conf={asked.conf}", *asked.overrides], [], None, "")
    assert len({point["seed"] for point in plan.points.first()}) == CHAMPION.repeats
    assert plan.config.search.scheduler.kind == "none"
    left = {lr: list(each) for lr, each in values.items()}
    assert {point["train.lr"] for point in plan.points.first()} == set(left)
    trained = [(point, left[point["train.lr"]].pop(0)) for point in plan.points.first() if left[point["train.lr"]]]
    record(uri, f"{sweep}-repeats", trained, [f"conf={asked.conf}", *asked.overrides])
    end_job(engine, f"{sweep}-repeats")


class Died(BaseException):
    """Death of a service between two statements."""


@pytest.mark.slow
def test_a_service_that_dies_before_any_statement_loses_and_doubles_nothing(
    engine: Engine, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Nights(champion=CHAMPION)
    registered = list[str]()

    def register(_: CommandLines, sweep: str, trial: str, *__: str) -> str:
        registered.append(make_champion(uri, sweep, trial))
        return registered[-1]

    monkeypatch.setattr(CommandLines, "register", register)
    monkeypatch.setattr(CommandLines, "report", lambda *_: None)
    night_of(engine, uri, 1, settings, [(at(0.001), 0.9), (at(0.01), 0.95)])
    new_judge(engine, uri).step()
    repeat(engine, uri, "night-1", {0.01: [0.93, 0.95, 0.94]})
    died = 0
    for statement in itertools.count(1):
        fresh, served = open_database(f"sqlite:///{statement}.db"), open_database(f"sqlite:///{statement}.db")
        begin_night(fresh, 1, settings)
        end_job(fresh, "night-1")
        left = [statement]

        def count(*_: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Died

        event.listen(served, "before_cursor_execute", count)
        for _ in range(4):  # whoever serves next goes on
            try:
                new_judge(served, uri, dead_after_s=0).step()
            except Died:
                died += 1
            if night(fresh, "night-1").verdict == "repeating":
                end_job(fresh, "night-1-repeats")
        judged = night(fresh, "night-1")
        assert (judged.verdict, judged.version, judged.reported is not None) == ("first", registered[-1], True), (
            statement
        )
        with fresh.connect() as connection:
            assert len(jobs.of_sweep(connection, "night-1-repeats")) == 1
        assert len(registered) == 1, statement
        if left[0] > 0:
            break
        client = MlflowClient(uri)
        client.delete_registered_model("digits")
        registered.clear()
        served.dispose()
    assert died > 20


def test_the_command_lines_of_a_night_work_here_even_if_the_operators_environment_names_a_service(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPS_SERVER", "http://127.0.0.1:1")
    with pytest.raises(SweepsError, match="there is no sweep 'none'"):
        CommandLines(uri, tmp_path)._run(["report", "none"], 120)
