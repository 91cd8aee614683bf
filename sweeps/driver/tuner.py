"""The Ray Tune ``Tuner`` of a plan, with its searcher, scheduler and callbacks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import cast

import optuna
from ray import tune

from sweeps.constants import TRIAL
from sweeps.driver.callbacks import LifecycleCallback, NoReporter, ShutdownStopper
from sweeps.driver.notebook import is_notebook
from sweeps.driver.searcher import SweepSearcher
from sweeps.driver.session import Session
from sweeps.plan.plan import Plan
from sweeps.runtime.trainable import Trial, TrialContext, trial_resources
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.advisors.failures import FailureAdvisor
from sweeps.search.advisors.priors import PriorAdvisor
from sweeps.search.expected_improvement import ExpectedImprovement
from sweeps.search.samplers.build import build_sampler, shuffled
from sweeps.search.samplers.transfer import EarlierTrials, points_to_retry
from sweeps.search.schedulers.build import build_scheduler
from sweeps.search.schedulers.concurrency import PauseAwareLimiter
from sweeps.search.schedulers.decisions import DecisionLog
from sweeps.search.stop_rules import stop_reason, too_little_improvement
from sweeps.search.study import clear_half_sampled, open_study_storage
from sweeps.search.study_version import STUDY_FILE, migrate_study

TUNE_FOLDER = "tune"
"""Folder in the sweep's one for files that Tune writes while it runs."""


def build_tuner(plan: Plan, session: Session, limiter: PauseAwareLimiter, context: TrialContext) -> tune.Tuner:
    """Build the tuner that runs a plan's search."""
    config, searcher = plan.config, cast("SweepSearcher", limiter.searcher)
    shutil.rmtree(plan.folder / TUNE_FOLDER, ignore_errors=True)  # Tune's files of an earlier session are not used
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(Trial, context=context), trial_resources(list(context.fit.pools))),
        tune_config=tune.TuneConfig(
            metric=config.search.metrics[0],
            mode=config.search.modes[0],
            search_alg=limiter,
            scheduler=build_scheduler(
                plan.composition,
                plan.space,
                lookup=plan.points.lookup,
                validate=plan.check_point,
                trials=context.trials,
                exploited=searcher.exploited,
                decisions=DecisionLog(
                    searcher.study,
                    on_report=searcher.on_trial_result,
                    interrupted=session.state.shutdown.interrupts_trials,
                ),
                num_trials=lambda: searcher.num_trials or config.search.num_trials,
            ),
            num_samples=-1,  # the searcher knows the number, which may change
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.config[TRIAL]),
        ),
        run_config=tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(plan.folder),
            failure_config=tune.FailureConfig(max_failures=config.search.max_retries),
            callbacks=[LifecycleCallback(session, searcher)],
            stop=ShutdownStopper(session.state.shutdown),
            verbose=0,
            progress_reporter=NoReporter() if is_notebook() else None,  # elsewhere Tune reports nothing by itself
        ),
    )


def build_searcher(plan: Plan, session: Session) -> SweepSearcher:
    """Build the searcher on the study in the sweep's folder, with its sampler and the points that come first."""
    storage, damage = open_study_storage(plan.folder / STUDY_FILE)
    if damage is not None:
        session.state.announce(damage)
    resumed = session.state.earlier is not None
    if resumed and clear_half_sampled(plan.folder / STUDY_FILE, storage, plan.name):
        storage, _ = open_study_storage(plan.folder / STUDY_FILE)
    search = plan.config.search
    is_grid = search.sampler.kind == "grid"
    earlier = EarlierTrials(plan.warm_start, plan.space, search.modes[0], plan.config.seed) if plan.warm_start else None
    searcher = SweepSearcher(
        session,
        plan.space,
        metric=search.metrics,
        mode=search.modes,
        sampler=build_sampler(search.sampler, plan.config.seed, plan.space, earlier),
        storage=storage,
        study_name=plan.name,
        num_trials=search.num_trials,
        points=[*plan.points.first(), *points_to_retry(plan.warm_start, plan.space)],
        grid=shuffled(plan.points.grid(), plan.config.seed) if is_grid else None,
        duplicates=search.duplicates,
        limits=search.limits,
        last_counts=search.value == "last",
        lookup=plan.points.lookup,
        validate=plan.check_point,
        enough=_stop_rule(plan, session),
        advisors=_advisors(plan, session),
    )
    migrate_study(searcher.study)
    return searcher


def _stop_rule(plan: Plan, session: Session) -> Callable[[optuna.Study], str | None]:
    """A function that returns the reason to start no further trial, if there is one. The rules may change while the
    sweep runs."""
    state, mode = session.state, plan.config.search.modes[0]
    improvement = ExpectedImprovement(plan.space, plan.points.lookup, mode, plan.config.seed)

    def enough(study: optuna.Study) -> str | None:
        reason = state.shutdown.budget_spent or stop_reason(state.stop, mode, study)
        return reason or too_little_improvement(state.stop, improvement, study)

    return enough


def _advisors(plan: Plan, session: Session) -> list[Advisor]:
    """Advisors from priors, which abstain where there are none, from limits on memory, and from failures."""
    advisors: list[Advisor] = [PriorAdvisor(plan.space, plan.config.seed)]
    if session.state.memory is not None:
        advisors.append(session.state.memory)
    if plan.config.search.avoid_failures:
        advisors.append(FailureAdvisor(plan.space))
    return advisors
