"""How a plan becomes a Ray Tune ``Tuner``: searcher, scheduler, trials, and what Tune tells us of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray import tune
from ray.tune.experiment import Trial as TuneTrial

from sweeps.constants import HEARD, NUMBER, ORIGIN, ORIGIN_PREFIX, PARAMETERS, REASON, STEP, TRIAL
from sweeps.driver.retries import AlikeFailures, retry_only_what_may_pass
from sweeps.driver.state import Monitor
from sweeps.driver.trial_status import State
from sweeps.errors import StorageFull, mentions_full_disk
from sweeps.plan.plan import Plan
from sweeps.runtime.checkpoint_layout import Origin
from sweeps.runtime.trainable import TRIAL_RESOURCES, Trial, TrialContext
from sweeps.search.advisors.advisor import Advisor
from sweeps.search.advisors.failures import FailureAdvisor
from sweeps.search.advisors.priors import PriorAdvisor
from sweeps.search.expected_improvement import ExpectedImprovement
from sweeps.search.reported_values import reported_values
from sweeps.search.samplers.build import build_sampler, shuffled
from sweeps.search.samplers.transfer import EarlierTrials, points_to_retry
from sweeps.search.schedulers.build import build_scheduler
from sweeps.search.schedulers.concurrency import PauseAwareLimiter
from sweeps.search.schedulers.decisions import DecisionLog, was_stopped
from sweeps.search.schedulers.pbt import Exploit
from sweeps.search.searcher import STOPPED_BY_USER, OptunaSearcher
from sweeps.search.stop_rules import stop_reason, too_little_improvement
from sweeps.search.study import clear_half_sampled, open_study_storage, rebuild_trial
from sweeps.search.study_version import STUDY_FILE, migrate_study
from sweeps.space.distributions import Lookup, Space

TUNE_FOLDER = "tune"
"""In the sweep's folder: what Tune writes while it runs."""


def build_tuner(plan: Plan, monitor: Monitor, limiter: PauseAwareLimiter, context: TrialContext) -> tune.Tuner:
    """The tuner that runs a plan's search."""
    config, searcher = plan.config, cast("SweepSearcher", limiter.searcher)
    shutil.rmtree(plan.folder / TUNE_FOLDER, ignore_errors=True)  # an earlier session's, of which nothing is needed
    return tune.Tuner(
        tune.with_resources(tune.with_parameters(Trial, context=context), TRIAL_RESOURCES),
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
                    searcher.study, on_report=searcher.on_trial_result, interrupted=monitor.is_interrupted
                ),
                num_trials=lambda: searcher.num_trials or config.search.num_trials,
            ),
            num_samples=-1,  # the searcher knows how many, which may change
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.config[TRIAL]),
        ),
        run_config=tune.RunConfig(
            name=TUNE_FOLDER,
            storage_path=str(plan.folder),
            failure_config=tune.FailureConfig(max_failures=config.search.max_retries),
            callbacks=[TellMonitor(monitor, searcher)],
            stop=StopWhenAsked(monitor),
            verbose=0,
        ),
    )


def build_searcher(plan: Plan, monitor: Monitor) -> SweepSearcher:
    """The study in the sweep's folder, its sampler, and the points that come first."""
    storage, wrong = open_study_storage(plan.folder / STUDY_FILE)
    if wrong is not None:
        monitor.view.event(monitor, wrong)
    if monitor.earlier is not None and clear_half_sampled(plan.folder / STUDY_FILE, storage, plan.name):
        storage, _ = open_study_storage(plan.folder / STUDY_FILE)
    search = plan.config.search
    is_grid = search.sampler.kind == "grid"
    earlier = EarlierTrials(plan.warm_start, plan.space, search.modes[0], plan.config.seed) if plan.warm_start else None
    searcher = SweepSearcher(
        monitor,
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
        lookup=plan.points.lookup,
        validate=plan.check_point,
        enough=_rules(plan, monitor),
        advisors=_advisors(plan, monitor),
    )
    migrate_study(searcher.study)
    return searcher


def _rules(plan: Plan, monitor: Monitor) -> Callable[[optuna.Study], str | None]:
    """Why no further trial is started; the rules themselves may change while the sweep runs."""
    mode = plan.config.search.modes[0]
    improvement = ExpectedImprovement(plan.space, plan.points.lookup, mode, plan.config.seed)

    def enough(study: optuna.Study) -> str | None:
        return (
            monitor.budget_spent
            or stop_reason(monitor.stop, mode, study)
            or too_little_improvement(monitor.stop, improvement, study)
        )

    return enough


def _advisors(plan: Plan, monitor: Monitor) -> list[Advisor]:
    """Priors, which say nothing where there are none, limits on memory, and what failed."""
    advisors: list[Advisor] = [PriorAdvisor(plan.space, plan.config.seed)]
    if monitor.memory is not None:
        advisors.append(monitor.memory)
    if plan.config.search.avoid_failures:
        advisors.append(FailureAdvisor(plan.space))
    return advisors


def catch_up(searcher: OptunaSearcher, lookup: Lookup, monitor: Monitor) -> None:
    """Let the record say of every trial what the study does: an earlier driver may have died between the two. What the
    study has lost, it has from the record."""
    _restore(searcher, lookup, monitor)
    for unfinished in searcher.unfinished:
        monitor.reopen(f"{unfinished.number:04}")
    searcher.prune_unfinished(was_stopped)
    for trial in searcher.study.get_trials(deepcopy=False):
        for exploit in _exploits(trial, searcher.space, lookup):
            monitor.exploited(exploit)
    states: dict[TrialState, State] = {
        TrialState.COMPLETE: "finished",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }
    for trial in searcher.study.get_trials(deepcopy=False, states=tuple(states)):
        if NUMBER in trial.user_attrs:
            reason = trial.user_attrs.get(REASON)
            monitor.catch_up(
                f"{trial.user_attrs[NUMBER]:04}",
                searcher.space.sample(trial, lookup),
                "stopped" if reason == STOPPED_BY_USER else states[trial.state],
                reason,
                max(reported_values(trial), default=0) if trial.state == TrialState.PRUNED else None,
            )


def _exploits(trial: FrozenTrial, space: Space, lookup: Lookup) -> Iterator[Exploit]:
    """Where a trial has gone on from, and with which values, in their order."""
    attributes = trial.user_attrs
    lineages = sorted(int(name.removeprefix(ORIGIN_PREFIX)) for name in attributes if name.startswith(ORIGIN_PREFIX))
    before = space.sample(trial, lookup) if lineages else {}
    for lineage in lineages:
        origin = attributes[f"{ORIGIN_PREFIX}{lineage}"]
        parameters = origin["parameters"]
        changed = {path: value for path, value in parameters.items() if before.get(path) != value}
        number = f"{attributes[NUMBER]:04}"
        yield Exploit(number, Origin(origin["trial"], origin["step"], lineage), parameters, changed)
        before = parameters


def _restore(searcher: OptunaSearcher, lookup: Lookup, monitor: Monitor) -> None:
    """Trials that are recorded, and that a damaged or lost study does not have. Those that were stopped go on: who
    wanted that, is not recorded."""
    told = {trial.user_attrs.get(NUMBER) for trial in searcher.study.get_trials(deepcopy=False)}
    states = {"finished": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
    lost = [trial for trial in monitor.recorded() if int(trial.trial) not in told]
    for trial in lost:
        reports = monitor.measured(trial.trial)
        restored = rebuild_trial(
            searcher.space,
            lookup,
            searcher.objectives,
            number=int(trial.trial),
            point=trial.params,
            results=[{**report.metrics, STEP: report.step, "training_iteration": report.step} for report in reports],
            state=states.get(trial.state, TrialState.RUNNING),
            values=trial.values or (None if trial.value is None else (trial.value,)),
            reason=trial.error,
        )
        searcher.restore_trial(restored)
    if lost:
        names = ", ".join(trial.trial for trial in lost)
        monitor.view.event(monitor, f"{STUDY_FILE} had lost {names}: taken in again from what is recorded")


class SweepSearcher(OptunaSearcher):
    """Gives every point its number, which names the trial for people."""

    def __init__(self, monitor: Monitor, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._monitor = monitor
        self.tune_trials: dict[str, TuneTrial] = {}
        """Tune's own trials that were started, by Tune's id: they know why they failed."""
        self.alike = AlikeFailures(self._works)

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        # Tune writes it into a file for a restore that we do not use; it knows the store, whose address has a password.
        return object, ()

    def why_failed(self, trial_id: str) -> str:
        trial = self.tune_trials.get(trial_id)
        return "it could not be started" if trial is None else _reason(trial)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        goes_on = bool(self.unfinished)
        point = super().suggest(trial_id)
        if not isinstance(point, dict):
            # At once, and not only when the last trial has ended: Tune then gives back the slots of those that have.
            return cast("dict[str, Any]", self.FINISHED) if self.ended_because is not None else point
        heard = {HEARD: max(self._running[trial_id].reports, default=0)} if goes_on else {}
        return {TRIAL: f"{self.number(trial_id):04}", PARAMETERS: point, **heard, **self._taken_over(trial_id)}

    def _taken_over(self, trial_id: str) -> dict[str, Any]:
        """What a trial that goes on from an earlier session had last taken over from another one."""
        attributes = self._running[trial_id].trial.user_attrs
        lineages = [int(name.removeprefix(ORIGIN_PREFIX)) for name in attributes if name.startswith(ORIGIN_PREFIX)]
        if not lineages:
            return {}
        last = attributes[f"{ORIGIN_PREFIX}{max(lineages)}"]
        return {PARAMETERS: last["parameters"], ORIGIN: Origin(last["trial"], last["step"], max(lineages))}

    def exploited(self, exploit: Exploit) -> None:
        """A trial is to go on from another one's state: the study keeps that, beside the values that it began with."""
        self._monitor.exploited(exploit)
        trial_id = next(each for each in self._running if f"{self.number(each):04}" == exploit.trial)
        origin = exploit.origin
        self._running[trial_id].trial.set_user_attr(
            f"{ORIGIN_PREFIX}{origin.lineage}",
            {
                "trial": origin.trial,
                "step": origin.step,
                "parameters": dict(exploit.parameters),
                "decision": dict(exploit.decision),
            },
        )

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if error and mentions_full_disk(why := self.why_failed(trial_id)):
            self._monitor.out_of_room(StorageFull(self._monitor.folder, why))
        self.interrupted = self._monitor.is_interrupted()
        super().on_trial_complete(trial_id, result, error)
        if error and not self.interrupted:
            self._end_if_all_fail_alike(trial_id)

    def _works(self) -> bool:
        """Whether a trial has made a report."""
        return any(reported_values(trial) for trial in self.study.get_trials(deepcopy=False))

    def _end_if_all_fail_alike(self, trial_id: str) -> None:
        reason = self.alike.add(self.tune_trials.get(trial_id), self.why_failed(trial_id))
        trials = self.study.get_trials(deepcopy=False)
        left = self.num_trials is None or sum(NUMBER in trial.user_attrs for trial in trials) < self.num_trials
        if reason is not None and left and not self._works():
            self.ended_because = (
                f"{reason}. No trial has made a report, so no further one is started; mend it, and "
                f"`python -m sweeps resume {self._monitor.sweep}` goes on"
            )


class StopWhenAsked(tune.Stopper):
    """Ends all trials when a person wants the end."""

    def __init__(self, monitor: Monitor):
        self._monitor = monitor

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._monitor.stopping is not None


class TellMonitor(tune.Callback):
    """Passes on what happens to trials."""

    def __init__(self, monitor: Monitor, searcher: SweepSearcher):
        self._monitor = monitor
        self._searcher = searcher
        self._search_over = False

    def on_step_end(self, iteration: int, trials: list[TuneTrial], **info: Any) -> None:
        over = self._searcher.ended_because is not None
        if over is not self._search_over:
            self._search_over = over
            self._monitor.broker.search_over.remote(over)

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._searcher.tune_trials[trial.trial_id] = trial
        retry_only_what_may_pass(trial, self._searcher.alike)
        self._monitor.trial_started(trial.config, trial.num_failures + 1)

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._monitor.trial_ended(trial.config, trial.last_result)

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._monitor.trial_retried(trial.config)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        self._monitor.trial_ended(trial.config, trial.last_result, error=_reason(trial))


def _reason(trial: TuneTrial) -> str:
    """The last line of the error that ended a trial's last attempt."""
    file = trial.error_file
    # Tune adds each error to a file here, which is copied some time later to where it looks itself.
    here = Path(file).read_text(encoding="utf-8") if file is not None and Path(file).exists() else ""
    lines = (here or str(trial.get_error() or "")).strip().splitlines() or ["unknown error"]
    return lines[-1].removeprefix("sweeps.errors.TrialFailed: ").strip()
