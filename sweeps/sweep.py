"""The story of a sweep: plan, check, start, search, record, end."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sweeps.checks import lookup_in
from sweeps.cluster import Fit, connected, fit
from sweeps.constants import PARAMETERS, TRIAL
from sweeps.errors import UserError
from sweeps.monitor import Monitor, View
from sweeps.objectives import Objectives
from sweeps.plan import Plan
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from ray import tune
    from ray.tune.experiment import Trial as TuneTrial

    from sweeps.search.searcher import OptunaSearcher
    from sweeps.tracking.recorder import Recorder


STOP_WITHIN_S = 6.0


class _LeaveNow(BaseException):
    """Raised in the main thread by a signal; like KeyboardInterrupt, it must pass through ``except Exception``."""


def run(plan: Plan, view: View) -> SweepRecord:
    """Run a sweep to its end, or until a person stops it.

    Raises:
        UserError: A mistake that only the tracking server or the cluster could show; nothing was started.
    """
    from sweeps.tracking.client import connect

    config = plan.config
    _make_folder(plan)
    try:
        connect(config.tracking.uri)  # nothing may start that could not be recorded
        with connected(config) as nodes:
            places = fit(config, plan.scalings, nodes)
            recorder = _recorder(plan)
            recorder.open(plan.composition.as_yaml(), plan.command, f"`{plan.command}`")
            _record(plan, recorder, view, places)
    except UserError:
        with contextlib.suppress(OSError):  # not empty, if it comes from the search itself
            plan.folder.rmdir()
        raise
    return load_sweep(config.tracking.uri, plan.name)


def _record(plan: Plan, recorder: Recorder, view: View, places: Fit) -> None:
    """Search, and record how it ended, however it ends."""
    status = "failed"
    try:
        monitor = Monitor(plan.name, plan.composition, recorder, view, places.concurrent)
        view.event(monitor, f"{plan.name}: {plan.config.search.num_trials} trials; {places.describe()}")
        status = _search(plan, monitor, use_gpu=places.use_gpu)
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        recorder.close(status)


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
    )


def _search(plan: Plan, monitor: Monitor, *, use_gpu: bool) -> str:
    """Let Tune search; returns how the sweep ended."""
    from ray import tune

    from sweeps.mailbox import open_mailbox
    from sweeps.search.schedulers import build_scheduler
    from sweeps.trial import TRIAL_RESOURCES, Trial, TrialContext

    config = plan.config
    monitor.mailbox = open_mailbox()
    context = TrialContext(plan.composition, str(plan.folder), use_gpu, monitor.mailbox)
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(Trial, context=context), TRIAL_RESOURCES),
        tune_config=tune.TuneConfig(
            metric=config.search.metrics[0],
            mode=config.search.modes[0],
            search_alg=_searcher(plan),
            scheduler=build_scheduler(config.search.scheduler),
            num_samples=config.search.num_trials,
            max_concurrent_trials=monitor.concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: str(trial.config[TRIAL]),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(plan.folder),
            failure_config=tune.FailureConfig(max_failures=config.search.max_retries),
            callbacks=[_tune_callback(monitor)],
            stop=_stopper(monitor),
            verbose=0,
        ),
    )
    monitor.start()
    try:
        with _stopping_on_signals(monitor):
            tuner.fit()
    finally:
        monitor.all_ended()
        monitor.close()
    if monitor.stopping:
        return "interrupted"
    return "finished" if monitor.counts()["finished"] else "failed"


def _searcher(plan: Plan) -> OptunaSearcher:
    """The study in the sweep's folder, its sampler, and the points that come first."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    from sweeps.search.samplers import build_sampler, shuffled
    from sweeps.search.searcher import OptunaSearcher

    class SweepSearcher(OptunaSearcher):
        """Gives every point its number, which names the trial for people."""

        def suggest(self, trial_id: str) -> dict[str, Any] | None:
            point = super().suggest(trial_id)
            if not isinstance(point, dict):
                return point
            return {TRIAL: f"{self.number(trial_id):04}", PARAMETERS: point}

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # not a line for every suggestion
    search, lookup = plan.config.search, lookup_in(plan.composition)
    points: list[dict[str, Any]] = [*search.points]
    if search.default_first and (default := plan.space.default_point(lookup)) is not None:
        points.insert(0, default)
    if search.sampler.kind == "grid":
        points = [*points, *(p for p in shuffled(plan.space.grid(lookup), plan.config.seed) if p not in points)]
    points = points[: search.num_trials]
    return SweepSearcher(
        plan.space,
        metric=search.metrics[0],
        mode=search.modes[0],
        sampler=build_sampler(search.sampler, plan.config.seed),
        storage=JournalStorage(JournalFileBackend(str(plan.folder / "optuna.log"))),
        study_name=plan.name,
        points=points,
        only_points=search.sampler.kind == "grid",
        lookup=lookup,
        validate=plan.composition.trial,
    )


def _stopper(monitor: Monitor) -> tune.Stopper:
    from ray import tune

    class StopWhenAsked(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return monitor.stopping

    return StopWhenAsked()


def _tune_callback(monitor: Monitor) -> tune.Callback:
    from ray import tune

    class TellMonitor(tune.Callback):
        def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
            monitor.trial_started(trial.config, trial.num_failures + 1)

        def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
            monitor.trial_ended(trial.config, trial.last_result)

        def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
            monitor.trial_retried(trial.config)

        def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
            monitor.trial_ended(trial.config, trial.last_result, error=_reason(trial))

    return TellMonitor()


def _reason(trial: TuneTrial) -> str:
    """The last line of the error that ended a trial."""
    error = trial.get_error() or trial.get_pickled_error()
    lines = str(error).strip().splitlines() if error is not None else ["unknown error"]
    return lines[-1].removeprefix("sweeps.errors.TrialFailed: ").strip()


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
