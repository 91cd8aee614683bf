"""What waits to be written to MLflow, and the thread that writes it.

Callers only append to memory. Per run, newer tags and states replace older ones that still wait, points keep their
order, and a run is created before anything is written to it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from sweeps.tracking.link import GaveUp, Link, Refused
from sweeps.tracking.points import StepSet
from sweeps.tracking.store import tag_filter

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger(__name__)

WRITE_EVERY_S = 1.0
"""Each write takes processor time from the training, however little it has to say."""
WRITE_AT_POINTS = 500
"""Points that wait before the thread is woken early."""
MOST_POINTS = 1_000_000
"""Points that are kept while MLflow is away, about 100 MB; what comes after is left out, and said."""
POINTS_PER_CALL = 1000
PAIRS_PER_CALL = 100
"""MLflow's limits for one ``log_batch``."""


class Point(NamedTuple):
    """Metrics at a step."""

    step: int
    timestamp_ms: int
    metrics: Mapping[str, float]
    goes_back: bool = False
    """From here on, what was logged at later steps may be logged again."""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to be created."""

    experiment_id: str
    name: str
    tags: dict[str, str]
    started_ms: int
    identity: dict[str, str]
    """Tags that no other run has: by them it is found if its creation succeeded but the answer was lost."""


@dataclass
class _Lane:
    """What waits for one run."""

    run_id: str | None = None
    new: NewRun | None = None
    files: dict[str, str] = field(default_factory=dict)
    """Text artifacts by their path."""
    params: dict[str, str] = field(default_factory=dict)
    points: deque[Point] = field(default_factory=deque)
    tags: dict[str, str | None] = field(default_factory=dict)
    """None: the tag is deleted."""
    status: tuple[str, int | None] | None = None
    """MLflow's run status and end time."""
    logged: dict[str, StepSet] | None = None
    """Steps in MLflow by metric; nothing when MLflow must be asked."""
    forget: bool = False
    """The trial ended: free ``logged`` after this."""
    every_s: float = 0.0
    """Least time between two writes."""
    next_write: float = 0.0
    refused: bool = False
    """A call for this run was refused: said once."""


class Outbox:
    """A thread that writes runs to MLflow; see the module."""

    def __init__(self, client: MlflowClient, link: Link, every_beat: Callable[[], None], beat_s: float) -> None:
        """The thread runs from ``start`` to ``close``.

        Args:
            client: MLflow's.
            link: Repeats calls.
            every_beat: Called on the thread each ``beat_s`` seconds.
            beat_s: See there.
        """
        self._client = client
        self._link = link
        self._every_beat, self._beat_s = every_beat, beat_s
        self._lanes: dict[str, _Lane] = {}
        self._dirty: dict[str, None] = {}
        self._condition = threading.Condition()
        self._waiting = 0
        """Points not yet in MLflow."""
        self._left_out = 0
        self._writing = False
        self._flushing = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="sweeps-mlflow", daemon=True)

    # --- callers: memory only ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def adopt(self, key: str, run_id: str, *, fresh: bool = False, every_s: float = 0.0) -> None:
        """Write to a run that exists under ``key``; ``fresh``: nothing has been logged to it."""
        with self._condition:
            self._lanes[key] = _Lane(run_id=run_id, logged={} if fresh else None, every_s=every_s)

    def create(self, key: str, new: NewRun) -> None:
        """Create a run, which later calls name by ``key``."""
        with self._condition:
            self._lanes[key] = _Lane(new=new, logged={})
            self._dirty[key] = None

    def describe(self, key: str, params: Mapping[str, str], files: Mapping[str, str]) -> None:
        """Write a run's parameters, save those that it has, and its text artifacts."""
        with self._condition:
            lane = self._lanes[key]
            lane.params, lane.files = dict(params), dict(files)
            self._dirty[key] = None

    def log(self, key: str, step: int, timestamp_ms: int, metrics: Mapping[str, float]) -> None:
        """Write metrics at a step, each (metric, step) once."""
        with self._condition:
            if self._waiting + len(metrics) > MOST_POINTS:
                if not self._left_out:
                    logger.warning("MLflow has been away so long that %d points wait; more are left out", self._waiting)
                self._left_out += len(metrics)
                return
            self._lanes[key].points.append(Point(step, timestamp_ms, metrics))
            self._dirty[key] = None
            self._waiting += len(metrics)
            if self._waiting >= WRITE_AT_POINTS:
                self._condition.notify_all()

    def go_back(self, key: str, step: int) -> None:
        """The run goes on from an earlier step: what comes after that may be logged again."""
        with self._condition:
            self._lanes[key].points.append(Point(step, 0, {}, goes_back=True))
            self._dirty[key] = None

    def tag(self, key: str, tags: Mapping[str, str | None]) -> None:
        """Set tags; None deletes one."""
        with self._condition:
            self._lanes[key].tags.update(tags)
            self._dirty[key] = None

    def status(self, key: str, status: str, ended_ms: int | None = None) -> None:
        """Set a run's status; with an end, it has ended."""
        with self._condition:
            lane = self._lanes[key]
            lane.status = (status, ended_ms)
            lane.forget = ended_ms is not None
            self._dirty[key] = None

    def run_id(self, key: str) -> str | None:
        """MLflow's id of a run, once it is created."""
        with self._condition:
            lane = self._lanes.get(key)
            return lane.run_id if lane else None

    def wait_for_run(self, key: str, timeout_s: float) -> str | None:
        """As ``run_id``, after waiting for its creation.

        Raises:
            Refused: It will never be created, which was said.
        """
        with self._condition:
            lane = self._lanes[key]
            self._condition.wait_for(lambda: lane.run_id is not None or lane.refused, timeout=timeout_s)
            if lane.run_id is None and lane.refused:
                raise Refused("its run was refused")
            return lane.run_id

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that waits now is written; whether it was."""
        with self._condition:
            self._flushing = True
            self._condition.notify_all()
            done = self._condition.wait_for(
                lambda: (not self._dirty and not self._writing) or not self._thread.is_alive(), timeout=timeout_s
            )
            self._flushing = False
            return done and not self._dirty

    def close(self, timeout_s: float) -> int:
        """Write what waits and end the thread; how many points could not be written."""
        self.flush(timeout_s)
        with self._condition:
            self._closing = True
            self._condition.notify_all()
        self._thread.join(timeout=max(1.0, timeout_s))
        return self._waiting + self._left_out

    # --- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        next_beat = time.monotonic() + self._beat_s
        try:
            while not self._closing:
                with self._condition:
                    self._condition.wait_for(
                        lambda: self._closing or self._flushing or self._waiting >= WRITE_AT_POINTS,
                        timeout=WRITE_EVERY_S,
                    )
                if time.monotonic() >= next_beat:
                    self._every_beat()
                    next_beat = time.monotonic() + self._beat_s
                for key in self._due():
                    self._write(self._lanes[key])
                with self._condition:
                    self._writing = False
                    self._condition.notify_all()
        except GaveUp:
            pass
        finally:
            with self._condition:
                self._writing = False
                self._condition.notify_all()

    def _due(self) -> list[str]:
        now = time.monotonic()
        with self._condition:
            due = [key for key in self._dirty if self._flushing or self._lanes[key].next_write <= now]
            for key in due:
                del self._dirty[key]
                self._lanes[key].next_write = now + self._lanes[key].every_s
            self._writing = bool(due)
            return due

    def _write(self, lane: _Lane) -> None:
        with self._condition:
            new, lane.new = lane.new, None
            files, lane.files = lane.files, {}
            params, lane.params = lane.params, {}
            points, lane.points = lane.points, deque()
            tags, lane.tags = lane.tags, {}
            status, lane.status = lane.status, None
            forget, lane.forget = lane.forget, False
        if new is not None:
            self._create(lane, new)
        if lane.run_id is None:  # its creation was refused, which was said
            self._written(sum(len(point.metrics) for point in points))
            return
        if lane.logged is None and (params or points):
            params = self._read_back(lane, params)
        for path, text in files.items():
            self._try(lane, self._client.log_text, lane.run_id, text, path)
        self._write_values(lane, lane.run_id, params, points, tags)
        if status is not None:
            self._try(lane, self._set_status, lane.run_id, *status)
        if forget:
            lane.logged = None

    def _create(self, lane: _Lane, new: NewRun) -> None:
        client, where = self._client, tag_filter(new.identity)
        try:
            run = self._link.create_once(
                find=lambda: next(iter(client.search_runs([new.experiment_id], where, max_results=1)), None),
                create=lambda: client.create_run(new.experiment_id, new.started_ms, dict(new.tags), new.name),
            )
        except Refused as error:
            logger.warning("MLflow refuses the run %s: %s", new.name, error)
            with self._condition:
                lane.refused = True
                self._condition.notify_all()
            return
        with self._condition:
            lane.run_id = str(run.info.run_id)
            self._condition.notify_all()

    def _read_back(self, lane: _Lane, params: dict[str, str]) -> dict[str, str]:
        """Fill ``lane.logged`` from MLflow; the ``params`` that are not there yet."""
        client, run_id = self._client, lane.run_id
        assert run_id is not None
        logged: dict[str, StepSet] = {}
        try:
            data = self._link.call(partial(client.get_run, run_id)).data
            for name in data.metrics:
                steps = logged.setdefault(name, StepSet())
                for metric in self._link.call(partial(client.get_metric_history, run_id, name)):
                    steps.add(metric.step)
        except Refused as error:
            self._say_refused(lane, error)
            data = None
        lane.logged = logged
        return {key: text for key, text in params.items() if data is None or key not in data.params}

    def _write_values(
        self,
        lane: _Lane,
        run_id: str,
        params: Mapping[str, str],
        points: Iterable[Point],
        tags: Mapping[str, str | None],
    ) -> None:
        from mlflow.entities import Param, RunTag

        for params_chunk in _chunks([Param(key, text) for key, text in params.items()], PAIRS_PER_CALL):
            self._try(lane, self._client.log_batch, run_id, params=params_chunk)
        tags_chunks = _chunks([RunTag(key, text) for key, text in tags.items() if text is not None], PAIRS_PER_CALL)
        points_chunks = _chunks(list(self._new_metrics(lane, points)), POINTS_PER_CALL)
        # Points and tags of one moment go in one call.
        for points_chunk, tags_chunk in zip_longest(points_chunks, tags_chunks, fillvalue=()):
            self._try(lane, self._client.log_batch, run_id, metrics=points_chunk, tags=tags_chunk)
            self._written(len(points_chunk))
        for key in [key for key, text in tags.items() if text is None]:
            with suppress(Refused):  # it is not there, which is what was wanted
                self._link.call(partial(self._client.delete_tag, run_id, key))

    def _new_metrics(self, lane: _Lane, points: Iterable[Point]) -> Iterator[Metric]:
        from mlflow.entities import Metric

        logged = lane.logged if lane.logged is not None else {}
        for point in points:
            for steps in logged.values() if point.goes_back else ():
                steps.forget_after(point.step)
            for name, value in point.metrics.items():
                if name not in logged:
                    logged[name] = StepSet()
                if logged[name].add(point.step):
                    yield Metric(name, value, point.timestamp_ms, point.step)
                else:
                    self._written(1)

    def _set_status(self, run_id: str, status: str, ended_ms: int | None) -> None:
        if ended_ms is None:
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, ended_ms)

    def _try(self, lane: _Lane, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            self._link.call(partial(function, *args, **kwargs))
        except Refused as error:
            self._say_refused(lane, error)

    def _say_refused(self, lane: _Lane, error: Refused) -> None:
        if not lane.refused:
            lane.refused = True
            logger.warning("MLflow refuses what is written to run %s: %s", lane.run_id, error)

    def _written(self, count: int) -> None:
        with self._condition:
            self._waiting -= count


def _chunks(items: list[T], size: int) -> list[list[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
