"""Construction of the Ray Tune ``Tuner`` for a plan, with its searcher, scheduler and callbacks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any, cast

from ray import tune
from ray.tune.schedulers import TrialScheduler

from sweeps.compat.ray_tune import explore_by_pb2
from sweeps.config.schedulers import NoScheduler
from sweeps.constants import TRIAL
from sweeps.driver.callbacks import LifecycleCallback, NoReporter, ShutdownStopper
from sweeps.driver.confirmation_searcher import RepeatSearcher
from sweeps.driver.notebook_view import is_notebook
from sweeps.driver.pause_aware_limiter import PauseAwareLimiter
from sweeps.driver.pinned_states import PinnedStates
from sweeps.driver.session import Session
from sweeps.driver.sweep_searcher import SweepSearcher
from sweeps.driver.tune_scheduler import TuneScheduler
from sweeps.plan.build_scheduler import build_scheduler
from sweeps.plan.plan import Plan
from sweeps.plan.searcher_options import searcher_options, stop_rule
from sweeps.plan.stage import study_file
from sweeps.runtime.trainable import Trial, TrialContext, trial_resources
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.study_file import open_study_storage
from sweeps.search.study_rewriting import clear_half_sampled
from sweeps.search.study_version import migrate_study
from sweeps.search.trial_ids import trial_id
from sweeps.texts.uri_passwords import redact_uri

TUNE_FOLDER = "tune"
"""Subfolder of the sweep's folder for files that Tune writes while it runs."""


def build_tuner(plan: Plan, session: Session, limiter: PauseAwareLimiter) -> tune.Tuner:
    """Build the tuner that runs the search of a plan: that of the sweep, or of one of its stages."""
    context = _context(session)
    searcher = cast("SweepSearcher", limiter.searcher)
    stage = None if plan.stage is None else plan.stage.number
    scheduler = build_scheduler(
        plan,
        DecisionLog(searcher.study, named=lambda number: trial_id(number, stage)),
        num_trials=lambda: searcher.num_awaited,
        remaining_s=session.state.budget_left_s,
        announce=session.state.announce,
        states=PinnedStates(context.trials, session.state.objectives),
        explore=explore_by_pb2,
    )
    in_tune = TuneScheduler(scheduler, limiter, session)
    session.decisions.begin(in_tune.decide)
    return _tuner(plan, session, limiter, context, in_tune)


def build_repeats_tuner(session: Session, limiter: PauseAwareLimiter) -> tune.Tuner:
    """Build the tuner that confirms a search: it trains the best trials again, to their end."""
    context = _context(session)
    context = replace(context, composition=context.composition.with_scheduler(NoScheduler(kind="none")))
    session.decisions.begin(None)
    return _tuner(session.plan, session, limiter, context, None)


def _context(session: Session) -> TrialContext:
    plan, state = session.plan, session.state
    # Trials do not use the tracking store, whose address may hold a password.
    composition = plan.composition.recorded_at(redact_uri(plan.config.tracking.uri))
    start_timeout_s = plan.config.cluster.node_timeout_s if state.awaits else 0.0
    return TrialContext(
        composition, str(plan.folder), plan.uri, state.shared, state.fit, session.broker.of_trials, start_timeout_s
    )


def _tuner(
    plan: Plan,
    session: Session,
    limiter: PauseAwareLimiter,
    context: TrialContext,
    scheduler: TrialScheduler | None,
) -> tune.Tuner:
    config, searcher = plan.config, cast("SweepSearcher | RepeatSearcher", limiter.searcher)
    shutil.rmtree(plan.folder / TUNE_FOLDER, ignore_errors=True)  # Tune's files of an earlier session are not used
    return tune.Tuner(
        tune.with_resources(trainable(context), trial_resources(list(context.fit.pools))),
        tune_config=tune.TuneConfig(
            metric=config.search.metrics[0],
            mode=config.search.modes[0],
            search_alg=limiter,
            scheduler=scheduler,
            num_samples=-1,  # the searcher knows the number, which may change
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.config[TRIAL]),
        ),
        run_config=tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(plan.folder),
            failure_config=tune.FailureConfig(max_failures=config.search.max_retries),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # the workers save the trial
            callbacks=[LifecycleCallback(session, searcher)],
            stop=ShutdownStopper(session.state.shutdown),
            verbose=0,
            progress_reporter=NoReporter() if is_notebook() else None,  # elsewhere Tune reports nothing by itself
        ),
    )


def trainable(context: TrialContext) -> type[Trial]:
    """Return Tune's trainable of a sweep, whose class has the context. ``tune.with_parameters`` would put it into Ray's
    object store: if Ray's node dies, Ray tries to recover such an object, and ends this process when that fails."""

    class SweepTrial(Trial):
        def setup(self, config: dict[str, Any]) -> None:  # type: ignore[override]
            super().setup(config, context)

    SweepTrial.__name__ = Trial.__name__
    return SweepTrial


def build_searcher(plan: Plan, session: Session) -> SweepSearcher:
    """Build the searcher on the study in the sweep's folder, with its sampler and the points to try first."""
    file, memory = plan.folder / study_file(plan.stage), session.state.memory if plan.stage is None else None
    storage, damage = open_study_storage(file)
    if damage is not None:
        session.state.announce(damage)
    resumed = session.state.earlier is not None
    if resumed and clear_half_sampled(file, storage, plan.name):
        storage, _ = open_study_storage(file)
    searcher = SweepSearcher(
        session,
        plan.space,
        storage=storage,
        study_name=plan.name,
        # Rules about values apply to the sweep's own trials. They may change while the sweep runs.
        enough=stop_rule(plan, lambda: session.state.stop) if plan.stage is None else None,
        stage=plan.stage,
        **searcher_options(plan, memory),
    )
    migrate_study(searcher.study)
    return searcher
