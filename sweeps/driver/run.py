"""The whole course of a sweep: start, search, record, finish."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sweeps.constants import TAG_DASHBOARD, TAG_ENDED, TAG_LANES, TRIAL
from sweeps.driver.driver_progress import STARTS_WITHIN_S, expect_progress
from sweeps.driver.early_end import Shutdown
from sweeps.driver.finish import close_record, finish, kept_error
from sweeps.driver.folder_access import bring_reports, held, make_folder, remove_folder
from sweeps.driver.guarded_view import GuardedView
from sweeps.driver.joined_cluster import joined_cluster
from sweeps.driver.measured_workers import with_measured_workers
from sweeps.driver.python_garbage import collect_from_now_on, without_collection
from sweeps.driver.recorded_provenance import record_composition, record_provenance
from sweeps.driver.requests import RequestHandler
from sweeps.driver.session import Session
from sweeps.driver.signals import ShutdownSignals, ended_by_signals
from sweeps.driver.startup import (
    adapt_study,
    announce_start,
    check_datasets,
    check_hub_on_cluster,
    connect_in_background,
    estimate_memory,
    memory_lines,
    open_recorder,
    place,
)
from sweeps.driver.sweep_state import SweepState, View
from sweeps.errors import StorageFailed, SweepsError, Undelivered, is_storage_failure
from sweeps.plan.plan import Plan
from sweeps.plan.planned_memory import questions_worth_asking
from sweeps.plan.preflight import Preflight
from sweeps.plan.resume import as_last_saved, check_before_training
from sweeps.plan.saved_sweep import save
from sweeps.runtime.cluster import Connection, fork_server
from sweeps.runtime.shared_folder import SharedFolder
from sweeps.runtime.trials_at_once import Fit
from sweeps.search.samplers.saved_trials import save_earlier
from sweeps.texts.wording import counted
from sweeps.tracking.client import first_cause
from sweeps.tracking.control_channel import RequestListener
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.sqlite_file import queryable_file
from sweeps.tracking.sweep_run import PARENT_FILE, check_name

if TYPE_CHECKING:
    from ray.tune import Tuner

    from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
    from sweeps.search.advisors.memory import MemoryEstimate
    from sweeps.tracking.recorder import Recorder

PROVENANCE_WITHIN_S = 30.0
"""Maximum seconds to wait at exit for the provenance thread."""
MAX_AT_START = 3
"""Maximum number of configs whose memory is computed while Ray starts."""


@ended_by_signals()
@without_collection()
def run(plan: Plan, view: View) -> SweepRecord:
    """Run a new sweep to its end, or until a person stops it.

    Raises:
        UserError: The tracking server or the cluster has revealed a mistake in the config; nothing was started.
    """
    config, view = plan.config, GuardedView(view)
    plan.check_hub()
    make_folder(plan)
    expect_progress(STARTS_WITHIN_S)
    began = time.monotonic()
    try:
        earlier = plan.warm_start  # a mistake in it is reported before Ray starts
        if queryable_file(config.tracking.uri) is not None:  # else it is checked once MLflow is imported
            check_name(config.tracking.uri, plan.name)
        announce_start(plan, view)
        tracking = connect_in_background(config.tracking.uri)
        asked = questions_worth_asking(plan)[:MAX_AT_START]
        with (
            held(plan) as copy,
            fork_server(config) as forks,
            Preflight(plan, asked) as preflight,
            joined_cluster(plan, forks) as cluster,
        ):
            trials = place(plan, view, cluster)
            warnings_of_datasets, check_hub = check_datasets(plan), check_hub_on_cluster(plan)
            tracking.result()  # no trial may start that could not be recorded
            warnings = preflight.result()
            warnings += memory_lines(plan, preflight, trials, cluster.nodes) if asked else []
            warnings += warnings_of_datasets()
            check_hub()
            plan, trials, measured = with_measured_workers(plan, trials, view)
            save(plan)
            save_earlier(plan.folder, earlier)
            recorder = open_recorder(plan, copy)
            _search_and_record(plan, recorder, view, trials, cluster, began=began, measured=measured, warnings=warnings)
    except (KeyboardInterrupt, Exception):
        if not (plan.folder / PARENT_FILE).exists():  # else MLflow may have a run, and only `resume` continues
            remove_folder(plan)
        raise
    return finish(plan)


@ended_by_signals()
@without_collection()
def resume(plan: Plan, view: View) -> SweepRecord:
    """Resume a sweep that has ended, or whose driver has died.

    Unfinished trials continue from their newest checkpoints; then new ones start, up to the planned number.

    Raises:
        UserError: Another driver runs the sweep, its code or data have a mistake or are gone, or the tracking server or
            the cluster refuses it.
    """
    config, view = plan.config, GuardedView(view)
    with contextlib.chdir(plan.working_folder):
        expect_progress(STARTS_WITHIN_S)
        with held(plan) as copy, fork_server(config) as forks:
            plan = as_last_saved(plan)
            check_before_training(plan)  # before anything is recorded: a trial that fails at its start fails for good
            began = time.monotonic()
            announce_start(plan, view, resumed=True)
            tracking = connect_in_background(config.tracking.uri)
            with joined_cluster(plan, forks) as cluster:
                tracking.result()
                trials = place(plan, view, cluster, resumed=True)
                adapt_study(plan)
                recorder = open_recorder(plan, copy, resume=True)
                save(plan)  # not before: the record, which now says that the sweep runs, brings `resume` here again
                _search_and_record(plan, recorder, view, trials, cluster, began=began)
        return finish(plan)


def _search_and_record(
    plan: Plan,
    recorder: Recorder,
    view: View,
    trials: Fit,
    cluster: Connection,
    *,
    began: float,
    measured: str | None = None,
    warnings: Sequence[str] = (),
) -> None:
    """Search, and record how the sweep ended, even after an error.

    Raises:
        StorageFailed: The sweep's folder cannot be written.
        DriverFailed: An unexpected error ended the driver.
        Undelivered: The tracking server has not received all of the record.
    """
    status, failed = "interrupted", True
    provenance: threading.Thread | None = None
    try:
        recorder.attach({}, {TAG_DASHBOARD: cluster.dashboard or ""} | ({TAG_LANES: measured} if measured else {}))
        if recorder.earlier is None:
            provenance = record_provenance(plan, recorder)
        else:
            record_composition(plan, recorder)  # it may have been extended
            bring_reports(plan, recorder.earlier)
        memory = estimate_memory(plan, trials, cluster.nodes, recorder)
        session = _open_session(plan, recorder, view, trials, memory)
        _announce_search(plan, session.state, trials, began, warnings)
        status = _search(session)
        failed = False
    except KeyboardInterrupt:
        failed = False
        raise
    except SweepsError:
        raise
    except Exception as error:
        if is_storage_failure(error):
            raise StorageFailed(plan.folder, first_cause(error)) from error
        raise kept_error(plan, error) from error
    finally:
        if provenance is not None:
            provenance.join(PROVENANCE_WITHIN_S)
        # `resume`, which the message of the error names, also delivers what MLflow has not received.
        with contextlib.suppress(Undelivered) if failed else contextlib.nullcontext():
            close_record(plan, recorder, status)


def _open_session(plan: Plan, recorder: Recorder, view: View, trials: Fit, memory: MemoryEstimate) -> Session:
    from sweeps.runtime.driver_side import DriverSide

    broker = DriverSide()  # its process starts while Tune, Optuna and torch are imported
    state = SweepState(
        plan.name,
        plan.composition,
        view,
        trials.concurrent,
        Shutdown(broker),
        folder=plan.folder,
        fit=trials,
        num_trials=plan.num_trials,
        earlier=recorder.earlier,
        memory=memory,
    )
    broker.avoid(trials.avoided())
    broker.set_groups(trials.groups)
    session = Session(plan, state, recorder, broker)
    if recorder.lost_entries:
        session.worker_events.record_again()
    if plan.stages:
        from sweeps.driver.stage_searches import StageWatch

        session.looks.append(StageWatch(plan, session).look)
    return session


def _announce_search(plan: Plan, state: SweepState, trials: Fit, began: float, warnings: Sequence[str]) -> None:
    if state.earlier is not None or plan.local_fit is None:  # else it was announced before Ray started
        done = f", {state.ended_count()} of them done" if state.earlier is not None else ""
        state.announce(f"{plan.name}: {counted(plan.num_trials, 'trial')}{done}; {trials.describe()}")
    state.announce(f"Ray and MLflow started in {time.monotonic() - began:.1f} s; starting workers")
    for warning in warnings:
        state.announce(warning)
    for sweep in plan.warm_start:
        note = f"; {sweep.note}" if sweep.note else ""
        state.announce(f"{sweep.name}: {len(sweep.points)} of its trials are in this sweep's space{note}")


def _search(session: Session) -> str:
    """Let Tune search, and continue if the sweep was extended meanwhile; return the sweep's status."""
    from sweeps.driver.cluster_watch import ClusterWatch
    from sweeps.driver.confirmer import begin_unconfirmed
    from sweeps.driver.stage_searches import record_stages

    state, plan = session.state, session.plan
    state.shared = SharedFolder.marked(plan.folder) if plan.uri is None else None
    signals = ShutdownSignals(state)
    with ClusterWatch(state, signals), _recorded(session):
        while True:
            plan = session.plan
            begin_unconfirmed(plan, session)
            ended_because = _train_stages(session, signals)
            if ended_because is None:
                plan = session.plan
                ended_because = _train(plan, session, signals)
                record_stages(plan, session)
            if not _continues(plan, session):
                if session.plan.config.search.confirm and state.shutdown.failing is None:
                    _confirm(session, signals)
                if not _continues(plan, session):
                    break
    return _status(session, ended_because)


def _continues(plan: Plan, session: Session) -> bool:
    """Whether the search continues, because the sweep was extended after it began with this plan, and still may."""
    if session.plan is plan:
        return False
    session.state.resume_within_budget()  # not before: trials that the budget has stopped must stay unfinished
    return not session.state.shutdown.interrupts_trials()


def _confirm(session: Session, signals: ShutdownSignals) -> None:
    """Confirm the winner by training the best trials again."""
    from sweeps.driver.confirmation_searcher import RepeatSearcher
    from sweeps.driver.confirmer import begin_confirmation, end_confirmation
    from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
    from sweeps.driver.tuner import build_repeats_tuner

    confirmer = begin_confirmation(session.plan, session)
    if not session.state.shutdown.interrupts_trials() and not confirmer.is_over():
        limiter = PauseAwareLimiter(RepeatSearcher(session, confirmer), session.state.concurrent)
        _tune(session, signals, limiter, build_repeats_tuner(session, limiter))
    end_confirmation(session, confirmer)


def _status(session: Session, ended_because: str | None) -> str:
    """Return the status of a sweep whose search has ended.

    Raises:
        StorageFailed: The sweep's folder cannot be written.
        ClusterLost: Ray is gone.
        SweepsError: The trials fail at their start.
    """
    state, shutdown = session.state, session.state.shutdown
    if (failure := shutdown.storage_failure or shutdown.cluster_failure) is not None:
        raise failure
    if shutdown.status is not None:
        return shutdown.status
    if shutdown.failing is not None:
        raise SweepsError(shutdown.failing)
    if (ended_because := shutdown.budget_spent or ended_because) is not None:
        session.recorder.attach({}, {TAG_ENDED: ended_because})
        if state.ended_count() < state.num_trials:
            state.announce(ended_because)
    return "finished" if state.counts()["finished"] else "failed"


@contextlib.contextmanager
def _recorded(session: Session) -> Iterator[None]:
    """Record trials while the block runs, and at its end the trials whose end Tune did not report. After an error these
    count as stopped, so that ``resume`` continues them."""
    session.start()
    try:
        yield
    except BaseException:
        session.state.shutdown.driver_fails = True
        raise
    finally:
        session.lifecycle.all_ended()
        try:
            if session.state.fit.lanes > 1 and session.state.shutdown.has_cluster:
                session.broker.end_groups()
        finally:  # a second Ctrl-C
            session.close()


def _train_stages(session: Session, signals: ShutdownSignals) -> str | None:
    """Train the stages that are not finished, one after another.

    Returns:
        Reason why the search ends before its last stage; None if it continues.
    """
    from sweeps.driver.stage_searches import begin_stage, end_stage, is_over

    for stage in session.plan.stages:
        if is_over(session.plan, stage):
            continue
        begin_stage(session.plan, session, stage)
        ended_because = _train(session.plan.in_stage(stage.number), session, signals)
        if (ended_because := end_stage(session.plan, session, stage, ended_because)) is not None:
            return ended_because
    return None


def _train(searched: Plan, session: Session, signals: ShutdownSignals) -> str | None:
    """Let Tune run the trials of one search, whose plan is ``searched``: the sweep's own search, or one of its stages.

    Returns:
        Reason to start no further trial, if there is one.
    """
    from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
    from sweeps.driver.reconcile import reconcile
    from sweeps.driver.tuner import build_searcher, build_tuner

    searcher = build_searcher(searched, session)
    reconcile(searcher, searched.points.lookup, session, searched.stage)
    pauses = searched.config.search.pauses_trials
    limiter = PauseAwareLimiter(searcher, session.state.concurrent, restart_together=pauses)
    _tune(session, signals, limiter, build_tuner(searched, session, limiter))
    searcher.settle()
    return searcher.ended_because


def _tune(session: Session, signals: ShutdownSignals, limiter: PauseAwareLimiter, tuner: Tuner) -> None:
    """Let Tune run trials until the limiter's searcher has no more."""
    from sweeps.compat.ray_tune import adapted_tune
    from sweeps.driver.changing_capacity import Capacity
    from sweeps.driver.cluster_watch import ClusterGuard
    from sweeps.runtime.worker_group import CLOSED_WITHIN_S

    capacity = Capacity(session.plan, session, limiter.places)
    handler = RequestHandler(session, limiter, capacity, signals)
    guard = ClusterGuard(session.state.shutdown)
    adapted = adapted_tune(
        ends_within_s=CLOSED_WITHIN_S + session.plan.config.ends_within_s,
        max_deaths=lambda trial: session.decisions.max_deaths(trial.config[TRIAL]),
        before_step=guard.wait_if_gone,
        releases=guard.releases,
    )
    listener = RequestListener(session.recorder.ids, handler.handle, session.plan.location)
    collect_from_now_on()
    with adapted, capacity, listener, signals.handled():
        tuner.fit()
    session.lifecycle.all_ended()
