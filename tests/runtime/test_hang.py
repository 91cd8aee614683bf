"""Workers that hang are found, with the stacks of all of them; long preparations and busy machines are no hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attempts import assignment
from local_actor import LOCAL_RAY
from running import Done, points, run
from training_runs import IMAGES, configured

from sweeps.folders.trial_files import log_name
from sweeps.runtime import attempt, hang, pool_evaluator, worker_loop
from sweeps.runtime import broker as broker_module
from sweeps.runtime.answers import Answer
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended, Log, Note, Report, Started
from sweeps.runtime.native_stacks import hang_error
from sweeps.runtime.pool_evaluator import EvaluationPlace
from sweeps.runtime.signs_of_life import signs_of_life
from sweeps.runtime.slot_queue import StartedGroup
from sweeps.runtime.trial_assignment import Assignment
from sweeps.worker_error import WorkerError
from sweeps_train import loop
from sweeps_train.config import Checkpoint, FunctionConfig, FunctionTask
from sweeps_train.frameworks import ray_train

pytestmark = pytest.mark.anyio


async def begun() -> Broker:
    """A broker without a driver, with a trial that has begun."""
    broker = Broker()
    await broker.stop_waiting_for_answers()
    await broker.begin("0000")
    return broker


async def test_workers_that_prepare_for_longer_than_a_hang_are_none_while_they_give_signs_of_life() -> None:
    broker = await begun()
    await broker.post(Started("0000", 1, 0))
    report = asyncio.create_task(broker.next_outcome("0000", 0.5))
    for _ in range(10):
        await asyncio.sleep(0.1)
        await broker.alive("0000", 1)
    waited = not report.done()
    await broker.alive("0000", 7)  # of another attempt
    ended: Any = await asyncio.wait_for(report, 5)
    assert waited
    assert "its workers hang" in str(ended.end.error)


async def test_workers_that_wait_for_nodes_may_start_later_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "START_WITHIN_S", 0.1)

    broker = await begun()
    began = time.monotonic()
    ended: Any = await asyncio.wait_for(broker.next_outcome("0000", 0.1, 1.0), 10)
    assert time.monotonic() - began >= 0.9
    assert "its workers do not start" in ended.end.error


async def test_workers_that_were_stopped_together_with_the_broker_do_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "LATE_S", 0.5)
    broker = await begun()
    await broker.post(Started("0000", 1, 0))
    outcome = asyncio.create_task(broker.next_outcome("0000", 0.5))
    await asyncio.sleep(0.1)
    time.sleep(2)  # as a container is paused, with all processes in it
    await asyncio.sleep(0.2)
    went_on = not outcome.done()
    ended: Any = await asyncio.wait_for(outcome, 5)
    assert went_on
    assert "its workers hang" in str(ended.end.error)


class WorkerActor:
    """Actor of a worker, which answers, fails or is silent."""

    def __init__(self, answer: str | Exception | None) -> None:
        self._answer = answer

    @property
    def execute(self) -> WorkerActor:
        return self

    async def remote(self, function: Any) -> str:
        assert function.__module__ == "sweeps.runtime.hang"  # which the worker can import
        if isinstance(self._answer, Exception):
            raise self._answer
        if self._answer is None:
            await asyncio.sleep(60)
        return str(self._answer)


async def heard_while_it_ends(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Broker], Awaitable[None]], *workers: WorkerActor
) -> tuple[Any, Broker]:
    """Follow a trial that is silent for too long: the outcome that its actor hears of, and the broker.
    ``meanwhile`` happens while its workers are asked for their stacks."""
    broker = Broker()

    async def diagnosed(message: str, *_: Any) -> WorkerError:
        await meanwhile(broker)
        return WorkerError("hang", "Hang", message, rank=0, num_workers=len(workers), node="a", traceback="stacks")

    monkeypatch.setattr(hang, "diagnose_hang", diagnosed)
    await broker.stop_waiting_for_answers()
    await broker.begin("0000")
    processes, locations = [("node", 1)] * len(workers), ("a",) * len(workers)
    await broker.slot_started("slot", StartedGroup(processes=processes, locations=locations, workers=workers))
    broker._attempts["0000"].assign("slot", "logs")
    await broker.post(Started("0000", 1, 0))
    return await asyncio.wait_for(broker.next_outcome("0000", 0.2), 10), broker


async def diagnosed_while_it_ends(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Broker], Awaitable[None]], *workers: WorkerActor
) -> tuple[Any, list[str]]:
    """Follow a trial that is silent for too long: the end that its actor hears of, and the notes to the driver."""
    heard, broker = await heard_while_it_ends(monkeypatch, meanwhile, *workers)
    return heard.end, [event.text for event in await broker.drain(0.1) if isinstance(event, Note)]


async def test_a_hang_ends_with_the_flight_records_of_the_workers_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: Broker) -> None: ...

    monkeypatch.setattr(hang, "RECORDS_WITHIN_S", 0.3)
    workers = WorkerActor("{}"), WorkerActor(RuntimeError("dead")), WorkerActor(None)
    ended, _ = await diagnosed_while_it_ends(monkeypatch, nothing, *workers)
    assert ended.flight_records == ("{}", None, None)
    assert ended.failure.traceback == "stacks"
    assert "its workers hang" in ended.error


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("kind", "is_cause"), [("exception", True), ("peer", False)])
async def test_the_error_of_a_worker_is_the_cause_of_a_hang_unless_it_lost_its_connection_to_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch, rank: int, kind: Any, *, is_cause: bool
) -> None:
    failed = WorkerError(kind, "ValueError", "too few rows", rank=rank, num_workers=2, node="a", traceback="")

    async def fails(broker: Broker) -> None:
        await broker.worker_failed("0000", 1, failed)

    end, _ = await diagnosed_while_it_ends(monkeypatch, fails, WorkerActor("{}"), WorkerActor("{}"))
    assert end.failure is not None
    assert [end.failure.kind, *(each.kind for each in end.others)] == ([kind, "hang"] if is_cause else ["hang", kind])


async def test_a_worker_that_has_returned_is_named_where_the_others_hang() -> None:
    broker = await begun()
    await broker.post(Started("0000", 1, 0))
    await broker.worker_finished("0000", 1, 1, 2, 100.0)
    ended: Any = await asyncio.wait_for(broker.next_outcome("0000", 0.1), 10)
    assert "its workers hang; worker 1 returned before" in ended.end.error


async def test_a_trial_that_ends_while_its_workers_are_asked_for_their_stacks_has_ended_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ends(broker: Broker) -> None:
        await broker.post(Log("0000", 1, 20, {"loss": 0.4}, 0))
        await broker.worker_finished("0000", 1, 0, 1, 100.0)

    end, notes = await diagnosed_while_it_ends(monkeypatch, ends, WorkerActor("{}"))
    assert end.error is None
    assert ["continued" in note for note in notes] == [True]


async def test_a_trial_that_goes_on_while_its_workers_are_asked_for_their_stacks_is_not_ended_until_it_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter(range(5))

    async def goes_on_once(broker: Broker) -> None:
        if next(times) == 0:
            await broker.post(Log("0000", 1, 5, {"loss": 0.5}, 0))

    end, notes = await diagnosed_while_it_ends(monkeypatch, goes_on_once, WorkerActor("{}"))
    assert "its workers hang" in end.error
    assert len(notes) == 1


@pytest.mark.parametrize("is_diagnosed", [False, True])
async def test_workers_of_an_actor_that_has_died_do_not_hang_when_another_actor_trains_the_trial(
    monkeypatch: pytest.MonkeyPatch, is_diagnosed: bool
) -> None:
    async def begins_again(broker: Broker) -> None:
        await broker.begin("0000")
        broker._attempts["0000"].assign("another slot", "logs")
        await broker.slot_started("another slot", StartedGroup())
        await broker.post(Started("0000", 2, 0))

    if is_diagnosed:  # their actor dies while they are asked for their stacks
        heard, broker = await heard_while_it_ends(monkeypatch, begins_again, WorkerActor("{}"))
        assert heard is None
    else:
        broker = await begun()
        await broker.post(Started("0000", 1, 0))
        waits = asyncio.create_task(broker.next_outcome("0000", 0.3))  # Ray lets the call of a dead actor go on
        await asyncio.sleep(0)
        await begins_again(broker)
        for step in range(6):
            await asyncio.sleep(0.1)
            await broker.post(Log("0000", 2, step, {"loss": 0.5}, 0))
        assert await asyncio.wait_for(waits, 10) is None
    assert not [event for event in await broker.drain(0) if isinstance(event, Ended | Note)]


async def test_a_report_that_waits_for_the_driver_longer_than_a_hang_is_answered_first() -> None:
    broker = Broker()
    await broker.begin("0000")
    for event in (Started("0000", 1, 0), Report("0000", 1, 20, {"loss": 0.4}, 0, done=True)):
        await broker.post(event)
    first = asyncio.create_task(broker.next_outcome("0000", 0.1))
    await asyncio.sleep(0.3)  # a driver that was stopped, say
    await broker.worker_finished("0000", 1, 0, 1, 100.0)
    await broker.answer([Answer("0000", 1, {"step": 20}, returns=True), Answer("0000", 1, {"step": 20})])
    done: Any = await asyncio.wait_for(first, 10)
    ended: Any = await asyncio.wait_for(broker.next_outcome("0000", 0.1), 10)
    assert (done.result, done.end) == ({"step": 20}, None)
    assert ended.end.error is None


@dataclass
class Signs:
    """Counts the signs of life that a broker would get."""

    given: list[tuple[str, int]] = field(default_factory=list)

    def alive(self, trial: str, attempt: int) -> None:
        self.given.append((trial, attempt))


def watched(signs: Signs, prepare_timeout_s: float) -> Assignment:
    return replace(assignment("0003", 2), broker=signs, hang_timeout_s=0.2, prepare_timeout_s=prepare_timeout_s)


def test_signs_of_life_end_when_the_worker_is_prepared_or_takes_too_long() -> None:
    signs = Signs()
    with signs_of_life(watched(signs, prepare_timeout_s=60)) as end:
        time.sleep(0.5)
        end()
        given = len(signs.given)
        assert given >= 2
        assert set(signs.given) == {("0003", 2)}
        time.sleep(0.3)
        assert len(signs.given) <= given + 1  # one may have been under way
    late = Signs()
    with signs_of_life(watched(late, prepare_timeout_s=0.3)):
        time.sleep(0.6)
        given = len(late.given)
        time.sleep(0.5)
        assert len(late.given) == given > 0


USERS = """
import os, time
import torch

class Net(torch.nn.Module):
    def __init__(self, sleeps=False):
        super().__init__()
        self.sleeps, self.layers = sleeps, torch.nn.Linear(64, 10)

    def forward(self, images):
        if self.sleeps and self.training and os.environ["RANK"] == "1":
            time.sleep(10_000)  # asleep
        return self.layers(images.flatten(1))

def build(prepares_s):
    if os.environ["RANK"] == "1":
        time.sleep(prepares_s)
    generator = torch.Generator().manual_seed(0)
    both = [torch.utils.data.TensorDataset(torch.rand(n, 64, generator=generator), torch.arange(n) % 10)
        for n in (200, 50)]
    return tuple(both)
"""
HANG_S, PREPARES_S = 20, 45


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("hangs")
    (folder / "users.py").write_text(USERS, encoding="utf-8")
    return run(
        folder,
        *("conf=digits", "space=none", "model=custom", "model._target_=users.Net", "+model.arguments.sleeps=false"),
        *("data=custom", "data._target_=users.build", "+data.arguments.prepares_s=0", "preflight.timeout_s=0"),
        *("space.model.arguments.sleeps={type: categorical, choices: [false, true]}",),
        f"space.data.arguments.prepares_s={{type: categorical, choices: [0, {PREPARES_S}]}}",
        *(
            "search=random",
            "search.num_trials=2",
            "search.default_first=false",
            "search.max_concurrent=1",
            "search.max_retries=0",
        ),
        points(
            {"model.arguments.sleeps": False, "data.arguments.prepares_s": PREPARES_S},
            {"model.arguments.sleeps": True, "data.arguments.prepares_s": 0},
        ),
        *("train.max_steps=4", "train.eval_every=2", "train.log_every=1"),
        *("cluster.num_cpus=2", f"scaling.hang_timeout_s={HANG_S}"),
    )


@pytest.mark.slow
def test_a_node_that_prepares_longer_than_a_hang_is_waited_for(done: Done) -> None:
    first = done.document["trials"][0]
    assert (first["state"], first["attempts"]) == ("finished", 1), done.err
    assert done.document["time"]["wall_s"] > PREPARES_S + HANG_S


@pytest.mark.slow
def test_a_hang_leaves_the_stacks_of_all_workers_in_the_run_of_its_trial(done: Done) -> None:
    trial = done.document["trials"][1]
    assert trial["state"] == "failed", done.err
    line = 1 + USERS.splitlines().index("            time.sleep(10_000)  # asleep")
    assert f"users.py:{line} in forward: time.sleep(10_000)" in done.err
    assert "all stacks are in logs/ of the trial's run" in done.err
    names = {Path(each.path).name for each in done.client.list_artifacts(trial["run_id"], "logs")}
    records = ["attempt-1.flight-record-0.json", "attempt-1.flight-record-1.json"]
    assert {"attempt-1.traceback.txt", *records} <= names
    artifact = done.client.download_artifacts(trial["run_id"], "logs/attempt-1.traceback.txt", str(done.folder))
    stacks = Path(artifact).read_text(encoding="utf-8")
    before, first, second = stacks.partition("--- worker 0 ---")[0], *stacks.split("--- worker ")[-2:]
    assert "its workers hang" in before
    assert first.startswith("0 ---")
    assert "in backward" in first
    assert second.startswith("1 ---")
    assert f'users.py", line {line} in forward' in second
    waiting, asleep = (
        json.loads(Path(done.client.download_artifacts(trial["run_id"], f"logs/{name}", str(done.folder))).read_text())
        for name in records
    )
    assert len(waiting["entries"]) > len(asleep["entries"])  # what worker 1 never reaches
    assert {each["timeout_ms"] for each in waiting["entries"]} == {1000 * (HANG_S + 60)}


def test_the_message_of_a_hang_says_where_all_stacks_are(tmp_path: Path) -> None:
    error = hang_error("no report for 20 s: its workers hang", [("node", 1)], ["a/0"], str(tmp_path))
    assert error.described == "no report for 20 s: its workers hang; all stacks are in logs/ of the trial's run"


async def test_hanging_workers_are_asked_for_the_stacks_that_the_error_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(rank: int) -> None:
        (tmp_path / log_name(rank)).write_text(f"Thread 0x1:\n  in worker {rank}\n", encoding="utf-8")

    def ask(asked: Any) -> list[Any]:
        assert asked == processes
        return [write(rank) for rank in range(len(asked))]

    processes = [("node", 11), ("node", 12)]
    monkeypatch.setattr(hang, "ask_for_stacks", ask)
    monkeypatch.setattr(hang, "STACKS_WRITTEN_S", 0.0)
    error = await hang.diagnose_hang("its workers hang", processes, ("a", "a"), str(tmp_path))
    assert all(f"--- worker {rank} ---\nThread 0x1:\n  in worker {rank}" in error.traceback for rank in (0, 1))


def test_a_worker_gives_signs_of_life_while_it_imports_a_function_and_none_while_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs = Signs()
    given: list[int] = []

    def wait() -> None:
        ends = time.monotonic() + 60
        while len(signs.given) < 2 and time.monotonic() < ends:
            time.sleep(0.01)

    def train() -> None:
        given.append(len(signs.given))
        time.sleep(0.3)

    monkeypatch.setitem(sys.modules, "gate", SimpleNamespace(wait=wait, train=train))
    source = "import gate\ngate.wait()\ndef train():\n    gate.train()\n"
    (tmp_path / "imported_slowly.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    runs = SimpleNamespace(kept=contextlib.nullcontext)
    utils = SimpleNamespace(rank=0, has_reported=True, has_stopped=False, end=lambda: None, runs=runs)
    monkeypatch.setattr(ray_train, "TrialTrainFnUtils", lambda *_: utils)
    monkeypatch.setattr(ray_train, "replaced_train_fn_utils", lambda _: contextlib.nullcontext())
    task: Any = {"kind": "function", "_target_": "imported_slowly.train"}
    training = FunctionConfig(task=FunctionTask(**task), checkpoint=Checkpoint())
    check_signs(signs, given, training)


def test_a_worker_gives_signs_of_life_while_it_loads_a_model_and_none_while_that_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signs = Signs()
    given: list[int] = []

    def train(_: Any, *, on_prepared: Callable[[], object], **__: Any) -> None:
        ends = time.monotonic() + 60
        while len(signs.given) < 2 and time.monotonic() < ends:
            time.sleep(0.01)
        on_prepared()
        given.append(len(signs.given))
        time.sleep(0.3)

    monkeypatch.setattr(loop, "train", train)
    check_signs(signs, given, configured(IMAGES))


@pytest.mark.parametrize(("prepare_timeout_s", "signs_given"), [(60.0, 2), (0.0, 0)])
def test_a_worker_gives_signs_of_life_while_it_waits_for_an_evaluation_in_a_pool_and_not_for_ever(
    prepare_timeout_s: float, signs_given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs, running = Signs(), SimpleNamespace(remote=lambda *_: Future[Any]())
    ray = SimpleNamespace(remote=lambda _: SimpleNamespace(options=lambda **_: running), wait=LOCAL_RAY.wait)
    monkeypatch.setattr(pool_evaluator, "ray", ray)
    given = replace(watched(signs, prepare_timeout_s), evaluation=EvaluationPlace({}, {}, {}))
    evaluator = worker_loop._evaluator(given, None)
    assert evaluator is not None
    evaluator.begin(Path("step-4"))
    assert [evaluator.next_result(within_s) for within_s in (0.0, 0.01, 0.01)] == [None] * 3
    assert len(signs.given) == signs_given  # none at the first look, which does not wait


def check_signs(signs: Signs, given: list[int], training: Any) -> None:
    """Train, and check that there were signs of life until the training began; ``given`` gets their number then."""
    worker_loop._train(replace(watched(signs, prepare_timeout_s=60), training=training), None, is_main=False)
    assert given[0] >= 2
    assert len(signs.given) <= given[0] + 1  # one may have been under way
