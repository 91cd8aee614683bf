"""The story of a sweep: plan, check, start, search, record, end."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sweeps.cluster import Fit, connected, fit, worker_room
from sweeps.constants import TAG_SWEEP
from sweeps.errors import UserError
from sweeps.monitor import Monitor, View
from sweeps.objectives import Objectives
from sweeps.plan import Plan
from sweeps.reopening import SWEEP_FILE, describe_search, reopened, save
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.store import fetch_metrics
from sweeps.tracking.uris import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from sweeps.search.memory import MemoryEstimate
    from sweeps.search.searcher import OptunaSearcher
    from sweeps.tracking.recorder import Recorder


STOP_WITHIN_S = 6.0
DRIVER_LOCK = "driver.lock"
"""In the sweep's folder: held by the one process that runs it."""


class _LeaveNow(BaseException):
    """Raised in the main thread by a signal; like KeyboardInterrupt, it must pass through ``except Exception``."""


def run(plan: Plan, view: View) -> SweepRecord:
    """Run a sweep to its end, or until a person stops it.

    Raises:
        UserError: A mistake that only the tracking server or the cluster could show; nothing was started.
    """
    config = plan.config
    _make_folder(plan)
    try:
        tracking = _connecting(config.tracking.uri)
        with the_only_driver(plan), connected(config) as nodes:
            tracking.result()  # no trial may start that could not be recorded
            _ = plan.warm_start
            places = fit(config, plan.scalings, nodes)
            save(plan)
            recorder = _recorder(plan)
            recorder.open(plan.composition.as_yaml(), plan.command, f"`{plan.command}`")
            _record(plan, recorder, view, places, _memory(plan, places, nodes))
    except UserError:
        _remove_folder(plan)
        raise
    return load_sweep(config.tracking.uri, plan.name)


def go_on(plan: Plan, view: View) -> SweepRecord:
    """Go on with a sweep that has ended, or whose driver has died: unfinished trials from their newest checkpoints,
    then new ones as far as the plan goes.

    Raises:
        UserError: Another driver runs the sweep, or the tracking server or the cluster does not take it.
    """
    config = plan.config
    tracking = _connecting(config.tracking.uri)
    with the_only_driver(plan), connected(config) as nodes:
        tracking.result()
        earlier = load_sweep(config.tracking.uri, plan.name)
        places = fit(config, plan.scalings, nodes)
        save(plan)
        recorder = _recorder(plan)
        recorder.open(plan.composition.as_yaml(), plan.command, f"`{plan.command}`", resume=True)
        _record(plan, recorder, view, places, _memory(plan, places, nodes, earlier), earlier)
    return load_sweep(config.tracking.uri, plan.name)


@contextlib.contextmanager
def the_only_driver(plan: Plan) -> Iterator[None]:
    """
    Raises:
        UserError: Another driver runs this sweep; two would train its trials twice.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(plan.folder / DRIVER_LOCK, timeout=0):
            yield
    except Timeout:
        raise UserError(
            f"{plan.name} is run by another process already; watch it with `python -m sweeps show {plan.name}`"
        ) from None


def _connecting(uri: str) -> Future[MlflowClient]:
    """A connection to MLflow, which takes seconds to import: made while Ray starts.

    Raises:
        TrackingUnreachable: A server does not answer; that is known before anything starts.
    """
    from sweeps.tracking.client import connect

    aside = ThreadPoolExecutor(1)
    client = aside.submit(connect, uri)
    aside.shutdown(wait=False)
    if sqlite_path(uri) is None:
        client.result()
    return client


def _memory(
    plan: Plan, places: Fit, nodes: Sequence[Mapping[str, float]], earlier: SweepRecord | None = None
) -> MemoryEstimate:
    """What is known already of the memory that trials take."""
    from sweeps.search.memory import MemoryEstimate

    config = plan.config
    memory = MemoryEstimate(plan.space, config.search.limits, worker_room(places, nodes, config.cluster.address))
    known = {sweep.name: list(zip(sweep.runs, sweep.points, strict=True)) for sweep in plan.warm_start}
    if earlier is not None:
        known[plan.name] = [(trial.run_id, trial.params) for trial in earlier.trials]
    for sweep, trials in known.items():
        metrics = fetch_metrics(config.tracking.uri, {TAG_SWEEP: sweep})
        for run, point in trials:
            memory.observe(run, point, metrics.get(run, {}))
    return memory


def _record(
    plan: Plan,
    recorder: Recorder,
    view: View,
    places: Fit,
    memory: MemoryEstimate,
    earlier: SweepRecord | None = None,
) -> None:
    """Search, and record how it ended, however it ends."""
    status = "failed"
    try:
        monitor = Monitor(
            plan.name,
            plan.composition,
            recorder,
            view,
            places.concurrent,
            folder=plan.folder,
            use_gpu=places.use_gpu,
            earlier=earlier,
            memory=memory,
        )
        done = f", {monitor.ended_count()} of them done" if earlier is not None else ""
        view.event(monitor, f"{plan.name}: {plan.config.search.num_trials} trials{done}; {places.describe()}")
        for sweep in plan.warm_start:
            view.event(monitor, f"{sweep.name}: {len(sweep.points)} of its trials are in this sweep's space")
        status = _search(plan, monitor)
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        recorder.close(status)


def _remove_folder(plan: Plan) -> None:
    """Of a sweep that could not start; if the search began, there is more in it, and it stays."""
    if {path.name for path in plan.folder.iterdir()} <= {DRIVER_LOCK, SWEEP_FILE}:
        shutil.rmtree(plan.folder, ignore_errors=True)


def _make_folder(plan: Plan) -> None:
    try:
        plan.folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"output_dir={plan.config.output_dir}: cannot make the folder {plan.folder} ({error.strerror}); "
            "set output_dir to a folder that can be written"
        ) from None


def _recorder(plan: Plan) -> Recorder:
    from sweeps.tracking.recorder import Recorder

    config = plan.config
    return Recorder(
        config.tracking.uri,
        config.tracking.experiment or plan.composition.conf,
        sweep=plan.name,
        conf=plan.composition.conf,
        objectives=Objectives.of(config.search),
        checkpoints=config.tracking.checkpoints,
        folder=str(plan.folder),
    )


def _search(plan: Plan, monitor: Monitor) -> str:
    """Let Tune search, again if the sweep was extended meanwhile; returns how it ended."""
    from sweeps.runtime.mailbox import open_mailbox

    monitor.mailbox = open_mailbox()  # its process starts while Tune, Optuna and torch are imported

    from sweeps.runtime.slot import prepare_slots
    from sweeps.runtime.trial import TrialContext
    from sweeps.tracking.requests import Requests
    from sweeps.tuning import build_searcher, build_tuner, catch_up

    prepare_slots()
    context = TrialContext(plan.composition, str(plan.folder), monitor.use_gpu, monitor.mailbox)
    monitor.start()
    try:
        while True:
            searcher = build_searcher(plan, monitor)
            catch_up(searcher, plan.points.lookup, monitor)
            extension = _Extension(plan, monitor, searcher)
            with (
                Requests(plan.config.tracking.uri, plan.name, extension.answer),
                _stopping_on_signals(monitor),
            ):
                build_tuner(plan, monitor, searcher, context).fit()
            monitor.all_ended()
            if monitor.stopping or extension.plan is plan:
                break
            plan = extension.plan
            monitor.go_on()
    finally:
        monitor.all_ended()
        monitor.close()
    if monitor.stopping:
        return "interrupted"
    if searcher.ended_because is not None and monitor.ended_count() < monitor.num_trials:
        monitor.view.event(monitor, searcher.ended_because)
    return "finished" if monitor.counts()["finished"] else "failed"


class _Extension:
    """What a person adds to the sweep while it runs."""

    def __init__(self, plan: Plan, monitor: Monitor, searcher: OptunaSearcher):
        self.plan = plan
        """As extended so far."""
        self._monitor, self._searcher = monitor, searcher

    def answer(self, request: Mapping[str, Any]) -> str:
        """
        Raises:
            UserError: The request cannot be done.
        """
        if request["verb"] != "extend":
            raise UserError(f"{self.plan.name}: its driver cannot {request['verb']}; it may be of an older version")
        extended = reopened(load_sweep(self.plan.config.tracking.uri, self.plan.name), request["changes"])
        save(extended)
        self.plan = extended
        self._monitor.extend(extended.composition)
        self._searcher.num_trials = extended.config.search.num_trials
        return f"{self.plan.name} goes on: {describe_search(extended.config.search)}"


@contextlib.contextmanager
def _stopping_on_signals(monitor: Monitor) -> Iterator[None]:
    """Ctrl-C, or SIGTERM: the workers save and stop at their next boundary. Who is not done within the deadline
    (it may still be starting), or when a person presses again, is killed with the connection to the cluster."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    armed = True

    def stop(*_: object) -> None:
        if not armed:
            return
        if monitor.stopping:
            raise _LeaveNow
        monitor.stopping = True
        monitor.view.event(monitor, "stopping: trials save their state and end; once more to leave at once")
        monitor.mailbox.stop_all.remote()
        signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    try:
        yield
    except BaseException:  # raised within Ray's own code, _LeaveNow comes out as something else
        if not monitor.stopping:
            raise
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
