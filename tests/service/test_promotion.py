"""Nights that build on each other: what tonight learns from, who is champion, what is told as worse."""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from postgres import on_both_databases
from recording import open_recorder
from small_http import Handler, serving_http
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from stores import copy_recorded

from sweeps.compose.overrides import parse_values
from sweeps.config.nights import Champion, Nights
from sweeps.config.objectives import Objectives
from sweeps.config.service import Service
from sweeps.constants import NIGHTS_ARTIFACT, TAG_SWEEP, TAG_TRIAL
from sweeps.errors import ArtifactsUnreachable, SweepsError, TrackingUnreachable
from sweeps.plan.plan import make_plan
from sweeps.registry.model_owners import ModelRights, check_owner
from sweeps.service.clock import Clock
from sweeps.service.database.engine import open_database, writing
from sweeps.service.nights.champion_version import champion_of
from sweeps.service.nights.command_lines import LOCKS, CommandLines
from sweeps.service.nights.night import Night, claim, find, of_schedule
from sweeps.service.nights.preparation import prepare
from sweeps.service.nights.promotion_worker import GIVE_UP_AFTER_S, PromotionWorker
from sweeps.service.nights.verdict import after_repeats
from sweeps.service.queue import jobs
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.job_requests import Run
from sweeps.service.service_context import ServiceContext
from sweeps.service.subprocesses import lock_file
from sweeps.tracking.artifacts import read_text
from sweeps.tracking.reader import load_sweep

TOKENS = ["conf=digits", "search=random", "space=none", "train.lr=tag(log, interval(1e-4, 1e-1))"]
ACCURACY = Objectives(("eval/accuracy",), ("max",))
CHAMPION = Champion(model="digits")
ONE_LOOK = Champion(model="digits", repeats=0)

Trials = Sequence[tuple[dict[str, Any], float]]


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service says where its sweeps are recorded, and not its environment."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///nowhere.db")


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
    """Register a trial as `best --register` does; returns the version."""
    client = MlflowClient(uri)
    if not client.search_registered_models(f"name='{CHAMPION.model}'"):
        client.create_registered_model(CHAMPION.model)
    run = next(each for each in load_sweep(uri, sweep).trials if each.trial == trial).run_id
    tags = {TAG_SWEEP: sweep, TAG_TRIAL: trial}
    version = client.create_model_version(CHAMPION.model, f"runs:/{run}/model", run, tags=tags).version
    client.set_registered_model_alias(CHAMPION.model, CHAMPION.alias, version)
    return str(version)


def record_champion(uri: str) -> None:
    """The first champion, and a night whose best trial looks better on its data."""
    record(uri, "by-hand", [(at(0.001), 0.9)])
    make_champion(uri, "by-hand", "0000")
    record(uri, "night-1", [(at(0.001), 0.91), (at(0.01), 0.95)])


class Nightly:
    """The nights of a schedule, of which number 1 is ``night-1``, and the service that judges them."""

    def __init__(self, engine: Engine, uri: str, dead_after_s: float = 30) -> None:
        self.engine, self.uri = engine, uri
        heartbeat = Heartbeat(engine, Clock(), dead_after_s)
        self.judge = PromotionWorker(ServiceContext(Service(tracking_uri=uri), engine), heartbeat)

    def night(self, number: int) -> Night:
        with self.engine.connect() as connection:
            found = find(connection, f"night-{number}")
        assert found is not None
        return found

    def run(self, number: int, settings: Nights, trials: Trials) -> None:
        """A night from its beginning to its end."""
        self.begin(number, settings)
        record(self.uri, f"night-{number}", trials)
        self.end(f"night-{number}")

    def run_recorded(self, settings: Nights) -> None:
        """The night of ``record_champion``, after its champion was made; its verdict waits for repeats, if any."""
        copy_recorded("champion-and-night", record_champion, Path.cwd())  # the folder of ``uri``
        self.begin(1, settings)
        self.end("night-1")
        self.judge.step()

    def begin(self, number: int, settings: Nights, tokens: Sequence[str] = TOKENS) -> list[str]:
        """Begin a night; return the overrides that its sweep gets from the nights before."""
        request, name = Run(conf="digits", overrides=list(tokens[1:])), f"night-{number}"
        with writing(self.engine) as connection:
            fired: dict[str, Any] = {"schedule": "nightly", "due": number}
            job = jobs.submit(connection, request, name, user="me", project="p", now=1.0, **fired)
        return prepare(self.engine, job, settings, self.uri, [])

    def job(self, sweep: str) -> jobs.Job:
        with self.engine.connect() as connection:
            return jobs.of_sweep(connection, sweep)[0]

    def end(self, sweep: str) -> None:
        number = self.job(sweep).id
        with writing(self.engine) as connection:
            jobs.set_values(connection, number, state="finished", ended=2.0)

    def repeat(self, number: int, values: dict[float, list[float]]) -> None:
        """Train what the judge has queued after a night, in the order in which its points say."""
        name = f"night-{number}-repeats"
        asked = self.job(name).parsed_request
        assert isinstance(asked, Run)
        tokens = [f"conf={asked.conf}", *asked.overrides]
        plan = make_plan(tokens, [], None, "")
        assert len({point["seed"] for point in plan.points.first()}) == CHAMPION.repeats
        assert plan.config.search.scheduler.kind == "none"
        left = {lr: list(each) for lr, each in values.items()}
        assert {point["train.lr"] for point in plan.points.first()} == set(left)
        trained = [(point, left[point["train.lr"]].pop(0)) for point in plan.points.first() if left[point["train.lr"]]]
        record(self.uri, name, trained, tokens)
        self.end(name)


@pytest.fixture
def nightly(engine: Engine, uri: str, monkeypatch: pytest.MonkeyPatch) -> Nightly:
    """Makes no reports, which take seconds."""
    monkeypatch.setattr(CommandLines, "report", lambda *_: None)
    return Nightly(engine, uri)


def at(lr: float) -> dict[str, Any]:
    return {"train.lr": lr}


def alias_of(uri: str) -> str:
    """Version of the champion."""
    return str(MlflowClient(uri).get_model_version_by_alias("digits", "champion").version)


# --- before a night -----------------------------------------------------------------------------------------------


def test_a_night_learns_from_the_newest_nights_before_and_tries_the_champion_again(nightly: Nightly) -> None:
    settings, uri = Nights(warm_start=2, champion=CHAMPION), nightly.uri
    for number, lr in enumerate((0.0015, 0.002, 0.003), start=1):
        nightly.run(number, settings, [(at(lr), 0.9), (at(2 * lr), 0.8)])
    version = make_champion(uri, "night-2", "0000")
    overrides = nightly.begin(4, settings)
    assert parse_values(overrides[1:]) == {
        "search.warm_start": ["night-3", "night-2"],
        "search.points": [at(0.002)],
    }
    assert (nightly.night(4).tried, nightly.night(4).point) == (version, at(0.002))
    plan = make_plan([*TOKENS, *overrides, f"tracking.uri={uri}"], [], None, "")
    assert plan.points.first()[-1] == at(0.002)
    assert [each.name for each in plan.warm_start] == ["night-3", "night-2"]


def test_the_configs_own_values_are_trained_on_the_first_night_and_again_only_after_a_change(nightly: Nightly) -> None:
    """Else a night of two trials would train those and the champion, and never a new point."""
    settings, uri = Nights(champion=CHAMPION), nightly.uri
    tokens = [*TOKENS, "train.lr=0.002", "space.train.lr={type: float, low: 1e-4, high: 1e-1, log: true}"]

    def first_points(number: int, tokens: Sequence[str]) -> list[dict[str, Any]]:
        overrides = nightly.begin(number, settings, tokens)
        return make_plan([*tokens, *overrides, f"tracking.uri={uri}"], [], None, "").points.first()

    assert first_points(1, tokens) == [at(0.002)]
    record(uri, "night-1", [(at(0.002), 0.8), (at(0.01), 0.9)], tokens)
    nightly.end("night-1")
    make_champion(uri, "night-1", "0001")
    assert first_points(2, tokens) == [at(0.01)]
    changed = [*tokens, "train.lr=0.003"]
    assert first_points(3, changed) == [at(0.003), at(0.01)]


def test_a_night_that_is_prepared_again_begins_once(nightly: Nightly) -> None:
    settings = Nights(champion=CHAMPION)
    first = nightly.begin(1, settings)
    assert prepare(nightly.engine, nightly.job("night-1"), settings, nightly.uri, []) == first
    with nightly.engine.connect() as connection:
        assert [each.sweep for each in of_schedule(connection, "nightly")] == ["night-1"]


def test_a_night_has_a_seed_of_its_own_unless_its_config_has_one(nightly: Nightly) -> None:
    seeds = [nightly.begin(number, Nights()) for number in (1, 2)]
    assert [len(each) for each in seeds] == [1, 1]
    assert seeds[0] != seeds[1]
    assert nightly.begin(3, Nights(), [*TOKENS, "seed=7"]) == []
    assert nightly.begin(4, Nights(), [*TOKENS, "seed=choice(1,2)"]) == []


def test_nights_of_another_space_or_metric_are_not_learned_from(nightly: Nightly) -> None:
    nightly.run(1, Nights(), [(at(0.001), 0.9)])
    nightly.run(2, Nights(), [(at(5.0), 0.9)])
    assert parse_values(nightly.begin(3, Nights()))["search.warm_start"] == ["night-1"]
    other = [*TOKENS, "search.metric=eval/loss", "search.mode=min"]
    assert "search.warm_start" not in parse_values(nightly.begin(4, Nights(), other))


@pytest.mark.parametrize(
    ("lr", "decay", "outside"),
    [(5.0, 0.0, "train.lr=5.0"), (0.001, 0.25, "train.weight_decay=0.25"), (0.001, 0.0, None)],
)
def test_a_champion_outside_of_tonights_space_or_with_another_value_where_tonight_has_one_stays_and_says_why(
    nightly: Nightly, lr: float, decay: float, outside: str | None
) -> None:
    record(nightly.uri, "by-hand", [({**at(lr), "train.weight_decay": decay, "seed": 7}, 0.9)])
    make_champion(nightly.uri, "by-hand", "0000")
    nightly.begin(1, Nights(champion=CHAMPION), [*TOKENS, "train.weight_decay=0.0"])
    record(nightly.uri, "night-1", [(at(0.01), 0.99)])
    nightly.end("night-1")
    nightly.judge.step()
    night = nightly.night(1)
    assert night.verdict == ("repeating" if outside is None else "kept")
    if outside is not None:
        assert f"version 1, has {outside}, which is outside of tonight's space; widen it" in str(night.reason)


@pytest.mark.parametrize("reads", ["preparation.load_earlier", "champion_version.load_sweep"])
def test_a_night_waits_for_an_mlflow_that_stops_answering_while_it_is_prepared(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    nightly.run_recorded(Nights(champion=CHAMPION))
    monkeypatch.setattr(f"sweeps.service.nights.{reads}", no_answer)
    with pytest.raises(TrackingUnreachable):
        nightly.begin(2, Nights(champion=CHAMPION))


def no_answer(*_: object) -> None:
    raise TrackingUnreachable("no answer")


class WithoutRegistry(Handler):
    """A server whose database restarts when it is asked about models."""

    def answer(self) -> None:
        if "model" in self.path:
            self.send(503, b"<h1>503</h1>")
        else:
            self.send(200, b"{}")


def test_a_registry_that_does_not_answer_is_waited_for() -> None:
    with serving_http(WithoutRegistry) as uri:
        with pytest.raises(TrackingUnreachable, match="503"):
            champion_of(uri, CHAMPION)
        with pytest.raises(TrackingUnreachable, match="503"):
            check_owner(uri, "digits", ModelRights("ada", "p"), lambda _: True, adopt=False)


# --- after a night ------------------------------------------------------------------------------------------------


def test_the_first_night_has_its_best_repeated_and_makes_it_champion_once(nightly: Nightly) -> None:
    nightly.run(1, Nights(champion=CHAMPION), [(at(0.001), 0.9), (at(0.01), 0.95)])
    nightly.judge.step()
    assert nightly.night(1).verdict == "repeating"
    nightly.repeat(1, {0.01: [0.93, 0.95, 0.94]})
    # A service died after it had registered the best of them, and before it wrote that down.
    version = make_champion(nightly.uri, "night-1-repeats", "0001")
    nightly.judge.step()
    nightly.judge.step()
    judged = nightly.night(1)
    assert (judged.verdict, judged.version, judged.challenger) == ("first", version, "0001")
    assert judged.noise == pytest.approx(0.01)
    assert judged.challengers == (0.93, 0.95, 0.94)
    assert judged.wall_s == 120.0
    assert len(MlflowClient(nightly.uri).search_model_versions("name='digits'")) == 1


def test_a_champion_that_somebody_makes_while_a_challenger_is_trained_again_stays(nightly: Nightly) -> None:
    nightly.run(1, Nights(champion=CHAMPION), [(at(0.001), 0.9), (at(0.01), 0.95)])
    nightly.judge.step()
    record(nightly.uri, "by-hand", [(at(0.02), 0.99)])
    version = make_champion(nightly.uri, "by-hand", "0000")
    nightly.repeat(1, {0.01: [0.93, 0.95, 0.94]})
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).version) == ("kept", version)
    assert f"version {version} became it meanwhile, and was not compared" in str(nightly.night(1).reason)
    assert alias_of(nightly.uri) == version


def test_a_champion_that_somebody_makes_while_a_challenger_is_registered_stays(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    def register(_: CommandLines, sweep: str, trial: str, *__: str) -> str:
        version = make_champion(nightly.uri, sweep, trial)
        made.append(make_champion(nightly.uri, "by-hand", "0000"))
        return version

    made = list[str]()
    monkeypatch.setattr(CommandLines, "register", register)
    nightly.run_recorded(Nights(champion=CHAMPION))
    nightly.repeat(1, {0.001: [0.90, 0.91, 0.92], 0.01: [0.94, 0.95, 0.96]})
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).version) == ("kept", made[0])
    assert alias_of(nightly.uri) == made[0]


def test_a_report_is_made_again_once_mlflow_answers_again(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[str] = []
    monkeypatch.setattr(CommandLines, "report", lambda _, sweep: made.append(sweep))
    nightly.run(1, Nights(champion=None), [(at(0.001), 0.9)])
    for read in ("find_sweep", "load_sweep"):
        with monkeypatch.context() as patch:
            patch.setattr(f"sweeps.service.nights.promotion_worker.{read}", no_answer)
            nightly.judge.step()
            nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).reported, made) == ("measured", None, [])
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [(each.getMessage(), each.exc_info) for each in warnings] == [
        (f"the {waiting} of night-1 waits: no answer; trying again in 30 s", None)
        for waiting in ("verdict", "verdict", "report", "report")
    ]
    nightly.judge.step()
    nightly.judge.step()
    assert (nightly.night(1).reported is None, made) == (False, ["night-1"])


def test_a_challenger_that_is_better_by_more_than_noise_becomes_champion(nightly: Nightly) -> None:
    nightly.run_recorded(Nights(champion=CHAMPION))
    nightly.repeat(1, {0.001: [0.90, 0.91, 0.92], 0.01: [0.94, 0.95, 0.96]})
    make_champion(nightly.uri, "night-1-repeats", "0005")
    MlflowClient(nightly.uri).set_registered_model_alias("digits", "champion", "1")  # the alias was not moved yet
    nightly.judge.step()
    judged = nightly.night(1)
    assert (judged.verdict, judged.version) == ("promoted", "2")
    assert (judged.champions, judged.champion, judged.tried) == ((0.90, 0.91, 0.92), 0.91, "1")
    assert alias_of(nightly.uri) == "2"


def test_a_challenger_that_is_not_better_by_more_than_noise_leaves_the_champion(nightly: Nightly) -> None:
    nightly.run_recorded(Nights(champion=CHAMPION))
    nightly.repeat(1, {0.001: [0.90, 0.93, 0.96], 0.01: [0.92, 0.94, 0.97]})
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).version) == ("kept", "1")
    assert "is not better by more than noise" in str(nightly.night(1).reason)


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


def test_nothing_is_repeated_when_the_champion_is_best(nightly: Nightly) -> None:
    copy_recorded("champion-and-night", record_champion, Path.cwd())
    nightly.run(2, Nights(champion=CHAMPION), [(at(0.001), 0.96), (at(0.01), 0.95)])
    nightly.judge.step()
    assert (nightly.night(2).verdict, nightly.night(2).champion, nightly.night(2).repeats) == ("kept", 0.96, None)


def test_without_repeats_the_nights_own_trials_and_the_given_noise_decide(nightly: Nightly) -> None:
    copy_recorded("champion-and-night", record_champion, Path.cwd())
    make_champion(nightly.uri, "night-1", "0001")
    MlflowClient(nightly.uri).set_registered_model_alias("digits", "champion", "1")
    nightly.begin(1, Nights(champion=ONE_LOOK, noise=0.01, regression=None))
    nightly.end("night-1")
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).version) == ("promoted", "2")


@pytest.mark.slow
def test_a_night_that_is_worse_is_told_promotes_nobody_and_is_in_its_report(engine: Engine, uri: str) -> None:
    nightly, settings = Nightly(engine, uri), Nights(champion=ONE_LOOK, noise=0.01)
    nightly.run(1, settings, [(at(0.01), 0.95)])
    make_champion(uri, "night-1", "0000")
    nightly.judge.step()
    nightly.run(2, settings, [(at(0.01), 0.80), (at(0.02), 0.90)])
    nightly.judge.step()
    assert (nightly.night(2).verdict, nightly.night(2).version) == ("regression", "1")
    assert nightly.night(2).reason == (
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
def test_nights_are_judged_in_their_order_against_the_champion_of_now(nightly: Nightly) -> None:
    """The second night began while the first one's repeats ran: it knew no champion then."""
    nightly.run(1, Nights(champion=CHAMPION), [(at(0.001), 0.91)])
    nightly.run(2, Nights(champion=CHAMPION), [(at(0.01), 0.95)])
    nightly.judge.step()
    assert [nightly.night(each).verdict for each in (1, 2)] == ["repeating", "running"]
    nightly.repeat(1, {0.001: [0.90, 0.91, 0.92]})
    make_champion(nightly.uri, "night-1-repeats", "0002")
    nightly.judge.step()
    assert [nightly.night(each).verdict for each in (1, 2)] == ["first", "repeating"]
    assert nightly.night(2).point == at(0.001)
    nightly.repeat(2, {0.001: [0.90, 0.91, 0.92], 0.01: [0.90, 0.91, 0.92]})
    nightly.judge.step()
    assert nightly.night(2).verdict == "kept"


def test_there_is_no_verdict_while_mlflow_does_not_tell_the_point_of_a_new_champion(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    nightly.run(1, Nights(champion=CHAMPION), [(at(0.001), 0.91), (at(0.01), 0.95)])
    record(nightly.uri, "by-hand", [(at(0.001), 0.9)])
    make_champion(nightly.uri, "by-hand", "0000")
    with monkeypatch.context() as outage:
        outage.setattr("sweeps.service.nights.champion_version.load_sweep", no_answer)
        nightly.judge.step()
    assert nightly.night(1).verdict == "running"
    nightly.judge.step()
    assert nightly.night(1).verdict == "repeating"


def test_a_night_without_a_record_or_a_value_has_failed(nightly: Nightly) -> None:
    nightly.begin(1, Nights())
    nightly.judge.step()
    assert nightly.night(1).verdict == "running"
    nightly.end("night-1")
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).reason) == ("failed", "It left no record.")


@on_both_databases
def test_a_night_whose_sweep_mlflow_has_lost_keeps_the_champion_and_holds_up_no_later_one(nightly: Nightly) -> None:
    nightly.run_recorded(Nights(champion=CHAMPION))
    nightly.repeat(1, {0.001: [0.90, 0.91, 0.92], 0.01: [0.94, 0.95, 0.96]})
    MlflowClient(nightly.uri).delete_run(load_sweep(nightly.uri, "night-1").mlflow.run_id)
    nightly.begin(2, Nights())
    nightly.end("night-2")
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(2).verdict) == ("kept", "failed")
    assert "MLflow has lost the trial" in str(nightly.night(1).reason)
    assert alias_of(nightly.uri) == "1"


def test_a_night_waits_only_a_while_for_artifacts_of_the_champion_that_cannot_be_read(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = [0.0]
    monkeypatch.setattr(Clock, "steady", lambda _: steady[0])
    nightly.begin(1, Nights(champion=CHAMPION))
    record(nightly.uri, "night-1", [(at(0.01), 0.99)])
    nightly.end("night-1")
    make_champion(nightly.uri, "night-1", "0000")

    def unreadable(*_: object) -> None:
        raise ArtifactsUnreachable("Unable to locate credentials")

    monkeypatch.setattr("sweeps.warm_start.earlier_trials.read_text", unreadable)
    with pytest.raises(ArtifactsUnreachable):
        nightly.begin(2, Nights(champion=CHAMPION))
    verdicts = list[str]()
    for _ in range(2):
        nightly.judge.step()
        verdicts.append(nightly.night(1).verdict)
        steady[0] += GIVE_UP_AFTER_S
    assert verdicts == ["running", "failed"]
    assert "be judged: Unable to locate credentials" in str(nightly.night(1).reason)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            SweepsError("its checkpoint is damaged; choose another trial"),
            "be judged: its checkpoint is damaged; choose",
        ),
        (AssertionError(), "be judged: AssertionError()"),
    ],
    ids=str,
)
def test_a_challenger_that_cannot_be_registered_leaves_the_champion_and_holds_up_no_later_night(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    steady = [0.0]
    monkeypatch.setattr(Clock, "steady", lambda _: steady[0])

    def verdicts() -> list[str]:
        found = list[str]()
        for _ in range(2):
            nightly.judge.step()
            steady[0] += GIVE_UP_AFTER_S
            found.append(nightly.night(1).verdict)
        return found

    nightly.run_recorded(Nights(champion=CHAMPION))
    nightly.repeat(1, {0.001: [0.90, 0.91, 0.92], 0.01: [0.94, 0.95, 0.96]})
    nightly.begin(2, Nights())
    nightly.end("night-2")
    (locks := Path("outputs", LOCKS)).mkdir(parents=True)
    with lock_file(locks / "best-night-1-repeats"):  # held by the child of a service that has died
        assert verdicts() == ["repeating", "repeating"]

    failure: Exception = OperationalError("COMMIT", {}, Exception("the connection was lost"))

    def fail(*_: object) -> str:
        raise failure

    monkeypatch.setattr(CommandLines, "register", fail)
    assert verdicts() == ["repeating", "repeating"]
    failure = error
    assert verdicts() == ["repeating", "kept"]
    assert words in str(nightly.night(1).reason)
    assert (nightly.night(2).verdict, alias_of(nightly.uri)) == ("failed", "1")


def test_repeats_that_could_not_start_in_time_leave_the_champion_and_say_so(nightly: Nightly) -> None:
    nightly.run_recorded(Nights(champion=CHAMPION))
    with writing(nightly.engine) as connection:
        jobs.set_values(connection, nightly.job("night-1-repeats").id, end_by=1.0)
        jobs.expire(connection, 2.0)
    nightly.judge.step()
    assert (nightly.night(1).verdict, nightly.night(1).reason) == (
        "kept",
        "The champion stays: the repeats left no record: its deadline passed before it could start",
    )


def test_a_night_is_judged_by_one_service_until_that_one_dies(nightly: Nightly) -> None:
    nightly.run(1, Nights(), [(at(0.01), 0.95)])
    first = Heartbeat(nightly.engine, Clock(), 30)
    assert claim(nightly.engine, nightly.night(1), first, None) is not None
    nightly.judge.step()
    assert nightly.night(1).verdict == "running"
    first.leave()
    nightly.judge.step()
    assert nightly.night(1).verdict == "measured"


class Behind(Clock):
    """The clock of a machine that is five minutes behind."""

    def now(self) -> float:
        return super().now() - 300


def test_a_night_is_judged_once_also_if_the_clocks_of_machines_differ(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = [1000.0]
    monkeypatch.setattr(Clock, "steady", lambda _: steady[0])
    nightly.run(1, Nights(), [(at(0.01), 0.95)])
    elsewhere = Heartbeat(nightly.engine, Behind(), 30, host="elsewhere")
    assert claim(nightly.engine, nightly.night(1), elsewhere, None) is not None

    def look(times: int, *, lives: bool) -> str:
        for _ in range(times):
            if lives:
                elsewhere._write(elsewhere._clock.now())
            steady[0] += 30
            nightly.judge.step()
        return nightly.night(1).verdict

    assert look(5, lives=True) == "running"
    assert look(5, lives=False) == "measured"


class Died(BaseException):
    """Death of a service between two statements."""


@pytest.mark.slow
def test_a_service_that_dies_before_any_statement_loses_and_doubles_nothing(
    nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, settings, registered = nightly.uri, Nights(champion=CHAMPION), list[str]()

    def register(_: CommandLines, sweep: str, trial: str, *__: str) -> str:
        registered.append(make_champion(uri, sweep, trial))
        return registered[-1]

    monkeypatch.setattr(CommandLines, "register", register)
    nightly.run(1, settings, [(at(0.001), 0.9), (at(0.01), 0.95)])
    nightly.judge.step()
    nightly.repeat(1, {0.01: [0.93, 0.95, 0.94]})
    died = 0
    for statement in itertools.count(1):
        fresh = Nightly(open_database(f"sqlite:///{statement}.db"), uri)
        served = open_database(f"sqlite:///{statement}.db")
        fresh.begin(1, settings)
        fresh.end("night-1")
        left = [statement]

        def count(*_: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Died

        event.listen(served, "before_cursor_execute", count)
        for _ in range(4):  # whoever serves next goes on
            try:
                Nightly(served, uri, dead_after_s=0).judge.step()
            except Died:
                died += 1
            if fresh.night(1).verdict == "repeating":
                fresh.end("night-1-repeats")
        state = (fresh.night(1).verdict, fresh.night(1).version, fresh.night(1).reported is not None)
        assert state == ("first", registered[-1], True), statement
        with fresh.engine.connect() as connection:
            assert len(jobs.of_sweep(connection, "night-1-repeats")) == 1
        assert len(registered) == 1, statement
        if left[0] > 0:
            break
        MlflowClient(uri).delete_registered_model("digits")
        registered.clear()
        served.dispose()
    assert died > 20


def test_the_command_lines_of_a_night_work_here_even_if_the_operators_environment_names_a_service(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPS_SERVER", "http://127.0.0.1:1")
    with pytest.raises(SweepsError, match="there is no sweep 'none'"):
        CommandLines(uri, tmp_path)._run(["report", "none"], 120)
