"""The story of a sweep: plan, check, start, search, record, end."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from sweeps.config.objectives import Objectives
from sweeps.constants import TAG_DASHBOARD, TAG_ENDED, TAG_SWEEP
from sweeps.driver.provenance import record_origin
from sweeps.driver.signals import Ending
from sweeps.driver.state import Monitor, View
from sweeps.errors import StorageFull, Undelivered, UserError, is_disk_full
from sweeps.files import FOLDER_MODE
from sweeps.folder import DRIVER_LOCK, LOG_FILE, the_only_driver
from sweeps.plan.extend import check_running, describe_search, is_longer
from sweeps.plan.plan import Plan
from sweeps.plan.preflight import Preflight
from sweeps.plan.saved_sweep import COPY_FILE, SWEEP_FILE, reopened, save, saved
from sweeps.redact import redact_uri
from sweeps.runtime.cluster import alive_nodes, connected
from sweeps.runtime.placement import Fit, fit, memory_per_worker
from sweeps.space.distributions import Space
from sweeps.tracking.client import first_cause
from sweeps.tracking.control_channel import RequestListener, clear_request
from sweeps.tracking.journal import JOURNAL_FILE, Journal
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.store import fetch_metrics
from sweeps.tracking.uris import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from sweeps.search.advisors.memory import MemoryEstimate
    from sweeps.search.schedulers.concurrency import PauseAwareLimiter
    from sweeps.search.searcher import OptunaSearcher
    from sweeps.tracking.recorder import Recorder


logger = logging.getLogger(__name__)

ORIGIN_WITHIN_S = 30.0
"""Of a sweep that is shorter than what looks at its code and data."""
LEAVE_WITHIN_S = 15.0
"""How long an interrupted sweep waits for its tracking server."""


def run(plan: Plan, view: View) -> SweepRecord:
    """Run a sweep to its end, or until a person stops it.

    Raises:
        UserError: A mistake that only the tracking server or the cluster could show; nothing was started.
    """
    config = plan.config
    _make_folder(plan)
    began = time.monotonic()
    try:
        search = config.search
        how = f"sampler {search.sampler.kind}, scheduler {search.scheduler.kind}"
        _say_starting(view, f"{plan.name}: {search.num_trials} trials{_local_places(plan)}; {how}")
        _say_starting(view, f"{plan.name}: starting Ray and connecting to MLflow")
        tracking = _connecting(config.tracking.uri)
        with the_only_driver(plan.folder, plan.name), Preflight(plan) as preflight, connected(config) as cluster:
            tracking.result()  # no trial may start that could not be recorded
            warnings = preflight.result()
            _ = plan.warm_start
            places = fit(config, plan.scalings, cluster.nodes)
            save(plan)
            recorder = _open_recorder(plan)
            recorder.attach({}, {TAG_DASHBOARD: cluster.dashboard or ""})
            origin = record_origin(plan, recorder)
            memory = _memory(plan, places, cluster.nodes)
            _record(plan, recorder, view, places, memory, origin=origin, began=began, warnings=warnings)
    except UserError:
        _remove_folder(plan)
        raise
    except KeyboardInterrupt:
        if not Journal.is_in(plan.folder):  # MLflow knows nothing of it
            _remove_folder(plan)
        raise
    return _ended(plan)


def _say_starting(view: View, text: str) -> None:
    starting = getattr(view, "starting", None)  # a user's own view may lack it
    if starting is not None:
        starting(text)


def _local_places(plan: Plan) -> str:
    fit_here = plan.local_fit
    return "" if fit_here is None else f"; {fit_here.describe()}"


def resume(plan: Plan, view: View) -> SweepRecord:
    """Go on with a sweep that has ended, or whose driver has died: unfinished trials from their newest checkpoints,
    then new ones as far as the plan goes.

    Raises:
        UserError: Another driver runs the sweep, or the tracking server or the cluster does not take it.
    """
    with contextlib.chdir(plan.working_folder):
        with the_only_driver(plan.folder, plan.name):
            _resume(plan, view)
        return _ended(plan)


def _resume(plan: Plan, view: View) -> None:
    config, began = plan.config, time.monotonic()
    _say_starting(view, f"{plan.name}: starting Ray and connecting to MLflow")
    tracking = _connecting(config.tracking.uri)
    with connected(config) as cluster:
        tracking.result()
        clear_request(load_sweep(config.tracking.uri, plan.name))
        places = fit(config, plan.scalings, cluster.nodes)
        _adapt_study(plan)
        save(plan)
        recorder = _open_recorder(plan, resume=True)
        recorder.attach({}, {TAG_DASHBOARD: cluster.dashboard or ""})
        earlier = load_sweep(config.tracking.uri, plan.name)  # with what its last driver had still to deliver
        memory = _memory(plan, places, cluster.nodes, earlier)
        _record(plan, recorder, view, places, memory, earlier, began=began)


def _ended(plan: Plan) -> SweepRecord:
    """What is recorded, with its report, and without checkpoints that need not be kept. A sweep is whole without
    either, so a failure is only said; and a person who has interrupted it is not made to wait."""
    tracking, kept = plan.config.tracking, plan.config.checkpoint.trials
    if kept is not None:
        from sweeps.retention.cleaning import keep_only_the_best

        keep_only_the_best(tracking.uri, plan.name, kept)
    record = load_sweep(tracking.uri, plan.name)
    if tracking.report and record.status != "interrupted":
        from sweeps.report.folder import report_folder

        try:
            from sweeps.report.page.report import make_report

            make_report(record, report_folder(record))
        except Exception as error:  # noqa: BLE001 - whatever a figure or the store has against it
            logger.warning("%s has no report: %s; `python -m sweeps report %s` makes it", plan.name, error, plan.name)
    return record


def _adapt_study(plan: Plan) -> None:
    """What a study has learned is what it knows of a wider space, too; and finished trials that become longer are not
    finished."""
    before = saved(plan)
    longer = is_longer(before, plan.composition)
    if longer or before.config.space != plan.config.space:
        from sweeps.search.study import rewrite_in_space

        rewrite_in_space(
            plan.folder, plan.name, Space(before.config.space), plan.space, plan.points.lookup, reopen=longer
        )


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
    from sweeps.search.advisors.memory import MemoryEstimate

    config = plan.config
    memory = MemoryEstimate(plan.space, config.search.limits, memory_per_worker(places, nodes, config.cluster.address))
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
    origin: threading.Thread | None = None,
    *,
    began: float,
    warnings: Sequence[str] = (),
) -> None:
    """Search, and record how it ended, however it ends.

    Raises:
        StorageFull: The disk of the sweep's folder is.
        Undelivered: The tracking server has not taken all of the record.
    """
    status, is_out_of_room = "failed", False
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
        if earlier is not None or plan.local_fit is None:  # else it was said before Ray started
            view.event(monitor, f"{plan.name}: {plan.config.search.num_trials} trials{done}; {places.describe()}")
        view.event(monitor, f"Ray and MLflow started in {time.monotonic() - began:.1f} s; starting workers")
        for warning in warnings:
            view.event(monitor, warning)
        for sweep in plan.warm_start:
            view.event(monitor, f"{sweep.name}: {len(sweep.points)} of its trials are in this sweep's space")
        status = _search(plan, monitor, recorder)
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    except Exception as error:
        if not is_disk_full(error):
            raise
        status, is_out_of_room = "interrupted", True
        if isinstance(error, StorageFull):
            raise
        raise StorageFull(plan.folder, first_cause(error)) from error
    finally:
        if origin is not None:
            origin.join(ORIGIN_WITHIN_S)
        # What a full disk has kept from MLflow is delivered by the same `resume` that its own message names.
        with contextlib.suppress(Undelivered) if is_out_of_room else contextlib.nullcontext():
            _close(plan, recorder, status)


def _close(plan: Plan, recorder: Recorder, status: str) -> None:
    patience_s = plan.config.tracking.patience_s
    if status in ("interrupted", "stopped"):  # a person waits
        left = recorder.close(status, min(patience_s, LEAVE_WITHIN_S), LEAVE_WITHIN_S)
    else:
        left = recorder.close(status, patience_s)
    if left:
        raise Undelivered(
            f"{plan.name}: {status}, and MLflow at {redact_uri(plan.config.tracking.uri)} has not taken all of its "
            f"record: {left.points} points of metrics and {left.artifacts} artifacts wait in {plan.folder}; "
            f"`python -m sweeps resume {plan.name}` delivers them"
        )


def _remove_folder(plan: Plan) -> None:
    """Of a sweep that could not start; if the search began, there is more in it, and it stays."""
    if {path.name for path in plan.folder.iterdir()} <= {DRIVER_LOCK, LOG_FILE, SWEEP_FILE, COPY_FILE, JOURNAL_FILE}:
        shutil.rmtree(plan.folder, ignore_errors=True)


def _make_folder(plan: Plan) -> None:
    try:
        plan.folder.mkdir(mode=FOLDER_MODE, parents=True)
    except OSError as error:
        raise UserError(
            f"output_dir={plan.config.output_dir}: cannot make the folder {plan.folder} ({error.strerror}); "
            "set output_dir to a folder that can be written"
        ) from None


def _open_recorder(plan: Plan, *, resume: bool = False) -> Recorder:
    from sweeps.tracking.parent_run import SweepInfo
    from sweeps.tracking.recorder import Recorder

    tracking, conf = plan.config.tracking, plan.composition.conf
    sweep = SweepInfo(
        name=plan.name,
        conf=conf,
        objectives=Objectives.of(plan.config.search),
        folder=plan.folder,
        config_yaml=plan.composition.as_yaml(),
        command=plan.command,
        description=f"`{plan.command}`",
        tags=plan.tags,
    )
    return Recorder.open(
        tracking.uri, tracking.experiment or conf, sweep, checkpoints=tracking.checkpoints, resume=resume
    )


def _search(plan: Plan, monitor: Monitor, recorder: Recorder) -> str:
    """Let Tune search, again if the sweep was extended meanwhile; returns how it ended."""
    from sweeps.runtime.broker import start_broker

    monitor.broker = start_broker()  # its process starts while Tune, Optuna and torch are imported

    from sweeps.compat.ray_train import start_autoscaling_coordinator
    from sweeps.driver.tuner import build_searcher, build_tuner, catch_up
    from sweeps.runtime.trainable import TrialContext
    from sweeps.search.schedulers.concurrency import PauseAwareLimiter

    start_autoscaling_coordinator()
    # Its actors have nothing to do with the store, whose address may have a password.
    composition = plan.composition.recorded_at(redact_uri(plan.config.tracking.uri))
    context = TrialContext(composition, str(plan.folder), monitor.use_gpu, monitor.broker)
    ending = Ending(monitor)
    monitor.start()
    try:
        while True:
            searcher = build_searcher(plan, monitor)
            catch_up(searcher, plan.points.lookup, monitor)
            limiter = PauseAwareLimiter(searcher, monitor.concurrent, restart_together=plan.config.search.pauses_trials)
            answers = _Answers(plan, monitor, limiter, ending)
            with RequestListener(recorder.ids, answers.answer), ending.on_signals():
                build_tuner(plan, monitor, limiter, context).fit()
            monitor.all_ended()
            if monitor.stopping or answers.plan is plan:
                break
            plan = answers.plan
            monitor.go_on()
    finally:
        monitor.all_ended()
        monitor.close()
    if monitor.full is not None:
        raise monitor.full
    if monitor.stopping:
        return monitor.stopping
    if searcher.ended_because is not None:
        recorder.attach({}, {TAG_ENDED: searcher.ended_because})
        if monitor.ended_count() < monitor.num_trials:
            monitor.view.event(monitor, searcher.ended_because)
    return "finished" if monitor.counts()["finished"] else "failed"


class _Answers:
    """To what a person asks of the sweep while it runs."""

    def __init__(self, plan: Plan, monitor: Monitor, limiter: PauseAwareLimiter, ending: Ending):
        self.plan = plan
        """As extended so far."""
        self._monitor, self._limiter, self._ending = monitor, limiter, ending

    def answer(self, request: Mapping[str, Any]) -> str:
        """
        Raises:
            UserError: The request cannot be done.
        """
        match request:
            case {"verb": "extend", "changes": changes}:
                return self._extend(changes)
            case {"verb": "stop", "trial": None}:
                self._ending.begin("stopped")
                return f"{self.plan.name} ends: its trials save their state"
            case {"verb": "stop", "trial": trial}:
                return self._monitor.stop_trial(trial)
        raise UserError(f"{self.plan.name}: its driver cannot {request['verb']}; it may be of an older version")

    def _extend(self, changes: Mapping[str, Any]) -> str:
        check_running(changes)
        extended = reopened(load_sweep(self.plan.config.tracking.uri, self.plan.name), changes)
        save(extended)
        self.plan = extended
        at_once = fit(extended.config, extended.scalings, alive_nodes()).concurrent
        self._monitor.extend(extended.composition, at_once)
        self._monitor.recorder.record_config(extended.composition.as_yaml())
        self._limiter.max_concurrent = at_once
        cast("OptunaSearcher", self._limiter.searcher).num_trials = extended.config.search.num_trials
        return f"{self.plan.name} goes on: {describe_search(extended.config.search)}; {at_once} at once"
