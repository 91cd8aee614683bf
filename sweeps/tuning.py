"""How a plan becomes a Ray Tune ``Tuner``: searcher, scheduler, trials, and what Tune tells us of them."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from ray import tune
from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import PARAMETERS, TRIAL
from sweeps.monitor import Monitor
from sweeps.plan import Plan
from sweeps.search.samplers import build_sampler, shuffled
from sweeps.search.schedulers import build_scheduler
from sweeps.search.searcher import OptunaSearcher
from sweeps.trial import TRIAL_RESOURCES, Trial, TrialContext


def build_tuner(plan: Plan, monitor: Monitor, context: TrialContext) -> tune.Tuner:
    """The tuner that runs a plan's search."""
    config, searcher = plan.config, _searcher(plan)
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(Trial, context=context), TRIAL_RESOURCES),
        tune_config=tune.TuneConfig(
            metric=config.search.metrics[0],
            mode=config.search.modes[0],
            search_alg=searcher,
            scheduler=build_scheduler(config.search.scheduler),
            num_samples=-1,  # the searcher counts the trials
            max_concurrent_trials=monitor.concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.config[TRIAL]),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(plan.folder),
            failure_config=tune.FailureConfig(max_failures=config.search.max_retries),
            callbacks=[TellMonitor(monitor, searcher)],
            stop=StopWhenAsked(monitor),
            verbose=0,
        ),
    )


def _searcher(plan: Plan) -> SweepSearcher:
    """The study in the sweep's folder, its sampler, and the points that come first."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # not a line for every suggestion
    search = plan.config.search
    is_grid = search.sampler.kind == "grid"
    return SweepSearcher(
        plan.space,
        metric=search.metrics,
        mode=search.modes,
        sampler=build_sampler(search.sampler, plan.config.seed, plan.space),
        storage=JournalStorage(JournalFileBackend(str(plan.folder / "optuna.log"))),
        study_name=plan.name,
        num_trials=search.num_trials,
        points=plan.points.first(),
        grid=shuffled(plan.points.grid(), plan.config.seed) if is_grid else None,
        duplicates=search.duplicates,
        limits=search.limits,
        lookup=plan.points.lookup,
        validate=plan.check_point,
    )


class SweepSearcher(OptunaSearcher):
    """Gives every point its number, which names the trial for people."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.tune_trials: dict[str, TuneTrial] = {}
        """Tune's own trials that were started, by Tune's id: they know why they failed."""

    def why_failed(self, trial_id: str) -> str:
        trial = self.tune_trials.get(trial_id)
        return "it could not be started" if trial is None else _reason(trial)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        point = super().suggest(trial_id)
        if not isinstance(point, dict):
            return point
        return {TRIAL: f"{self.number(trial_id):04}", PARAMETERS: point}


class StopWhenAsked(tune.Stopper):
    """Ends all trials when a person wants the end."""

    def __init__(self, monitor: Monitor):
        self._monitor = monitor

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._monitor.stopping


class TellMonitor(tune.Callback):
    """Passes on what happens to trials."""

    def __init__(self, monitor: Monitor, searcher: SweepSearcher):
        self._monitor = monitor
        self._searcher = searcher

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._searcher.tune_trials[trial.trial_id] = trial
        self._monitor.trial_started(trial.config, trial.num_failures + 1)

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._monitor.trial_ended(trial.config, trial.last_result)

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._monitor.trial_retried(trial.config)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._monitor.trial_ended(trial.config, trial.last_result, error=_reason(trial))


def _reason(trial: TuneTrial) -> str:
    """The last line of the error that ended a trial."""
    error = trial.get_error() or trial.get_pickled_error()
    lines = str(error).strip().splitlines() if error is not None else ["unknown error"]
    return lines[-1].removeprefix("sweeps.errors.TrialFailed: ").strip()
