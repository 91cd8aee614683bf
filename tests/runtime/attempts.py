"""Attempts at trials for tests of the broker: what an actor gives to it and hears of it, and groups without workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import ray

from sweeps.constants import TRIAL
from sweeps.driver.callbacks import LifecycleCallback
from sweeps.runtime.answers import Outcome
from sweeps.runtime.broker import Broker
from sweeps.runtime.events import Ended
from sweeps.runtime.trial_assignment import Assignment
from sweeps.runtime.trials_at_once import Workers
from sweeps.runtime.worker_group_spec import Lanes, WorkerGroupSpec
from sweeps.worker_error import WorkerError

if TYPE_CHECKING:
    from sweeps.driver.sweep_searcher import SweepSearcher

SPEC = WorkerGroupSpec(
    workers=Workers(2, {"CPU": 1.0}),
    use_gpu=False,
    resources_per_worker={"CPU": 1.0},
    avoid=(),
    environment={},
    hang_timeout_s=60.0,
    spare_processes="never",
    cluster_grows=False,
    storage_path="",
    lanes=Lanes(2, False, "", None, 1.0, base=("a model",)),
)


def assignment(trial: str, attempt: int) -> Assignment:
    nothing: Any = None
    return Assignment(
        trial=trial,
        attempt=attempt,
        training=nothing,
        metrics=("eval/loss",),
        modes=("min",),
        checkpoint_folder="",
        log_folder="",
        broker=nothing,
        hang_timeout_s=60.0,
        prepare_timeout_s=60.0,
    )


async def begin(broker: Broker, trial: str = "0000", slot: str = "slot") -> int:
    """Begin a trial and give it to a slot; return the number of the attempt."""
    attempt = (await broker.begin(trial)).attempt
    await broker.assign(slot, assignment(trial, attempt))
    return attempt


async def end_of(outcome: Awaitable[Outcome | None]) -> Ended:
    """The end of its workers that a trial's actor hears of next."""
    heard = await asyncio.wait_for(outcome, 10)
    assert heard is not None
    assert heard.end is not None
    return heard.end


def die_for_good(session: Any, *trials: str) -> None:
    """Let the actors of trials die without a retry left, as Tune tells a session."""
    callback = LifecycleCallback(session, searcher=cast("SweepSearcher", None))
    for trial in trials:
        died: Any = SimpleNamespace(
            config={TRIAL: trial}, last_result={}, error_file=None, get_error=lambda: "The actor died"
        )
        callback.on_trial_error(0, [], died)


def session_of(*, lanes: int = 1, is_elastic: bool = False, ends: list[str] | None = None, **broker: Any) -> Any:
    """A session, as far as ``LifecycleCallback`` asks it, with these calls of its broker."""
    config = SimpleNamespace(scaling=SimpleNamespace(is_elastic=is_elastic))
    return SimpleNamespace(
        state=SimpleNamespace(composition=SimpleNamespace(config=config), fit=SimpleNamespace(lanes=lanes)),
        broker=SimpleNamespace(**broker),
        lifecycle=SimpleNamespace(ended=lambda config, result, error: [] if ends is None else ends.append(error)),
    )


def lost(reason: str) -> WorkerError:
    return WorkerError("lost", "ActorDiedError", f"worker 1 on a was lost: {reason}", rank=1, num_workers=2, node="a")


def failed(kind: Any, message: str = "worker 1 on b was lost", *, taken: bool = False) -> Ended:
    """The end of the first attempt, whose worker has failed in this way."""
    error = WorkerError(kind=kind, type="E", message=message, rank=1, num_workers=2, node="b", node_was_taken=taken)
    return Ended("0000", 1, message, failure=error)


class Method:
    """A method of an actor."""

    def __init__(self, remote: Callable[[], Awaitable[None]]) -> None:
        self.remote = remote


class Owner:
    """Owner of a worker group that is not there."""

    def __init__(self) -> None:
        self.is_closed = False
        self.dies = asyncio.Event()
        self.close, self.wait = Method(self._close), Method(self._wait)

    async def _close(self) -> None:
        self.is_closed = True

    async def _wait(self) -> None:
        await self.dies.wait()
        raise ray.exceptions.RayActorError
