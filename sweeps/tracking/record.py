"""Records of sweeps and trials, as read from MLflow."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.confirmation_record import Confirmation
from sweeps.tracking.forecast_record import Forecast
from sweeps.tracking.stage_results import StageResult
from sweeps.tracking.time_account import TimeAccount
from sweeps.tracking.trial_history import FailedAttempt, Span, TimedNote, Weights
from sweeps.tracking.values import finite, short

Session = tuple[float, float]
"""Unix times of a driver's start and end; for the current driver, the end is the time of its last update."""
SweepStatus = Literal["running", "finished", "stopped", "failed", "interrupted"]
"""Status of a sweep."""
TrialState = Literal["finished", "pruned", "failed", "running", "stopped"]
STATES: tuple[str, ...] = get_args(TrialState)
"""States of a trial, in the order in which they are counted."""
INTERRUPTED = "interrupted"
"""State shown for a trial that had not ended when its sweep did; ``resume`` continues it. See
``SweepRecord.settled``."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TrialRecord:
    """Record of one trial, read from its run, which is nested in its sweep's run."""

    trial: str
    """The trial's id, unique within its sweep: ``0007``."""
    state: str
    """One of ``STATES``."""
    value: float | None
    """Best reported value of the sweep's metric; None if the trial has reported none."""
    values: tuple[float, ...] = ()
    """Values of all objectives in the report with the best value of the first one; empty with a single objective."""
    best_step: int | None = None
    """Number of optimizer steps at the trial's best report; None in the record of an older version."""
    violation: str | None = None
    """The limit on a metric that the trial exceeded, in words; such a trial cannot be the best."""
    params: dict[str, Any]
    """Sampled values by dotted path."""
    run_id: str
    """MLflow's id of the trial's run."""
    steps: int
    """Number of optimizer steps done."""
    attempts: int
    """Number of times that the trial was started."""
    started: float | None = None
    """Unix time of the trial's start."""
    ended: float | None = None
    """Unix time of the trial's end; None while it runs."""
    checkpoint: str | None = None
    """URI of the trial's best checkpoint, or of the last one if there is no best."""
    error: str | None = None
    """Last line of the error with which the trial failed."""
    pool: str | None = None
    """Pool in which the trial last ran; None without pools."""
    spans: tuple[Span, ...] = ()
    """Periods in which the trial trained, and its workers."""
    account: TimeAccount | None = None
    """Time of the trial's workers by activity, in ended attempts; None if none has ended, or in the record of an older
    version."""
    failures: tuple[FailedAttempt, ...] = ()
    """Attempts that failed, or moved to other workers."""
    notes: tuple[TimedNote, ...] = ()
    """Notes of the trial's workers for the user."""
    checkpoints: dict[str, str] = field(default_factory=dict)
    """URIs of the trial's ``best`` and ``last`` checkpoint, if they are kept."""
    weights: dict[str, Weights] = field(default_factory=dict)
    """Step and values of the weights in each checkpoint; empty in the record of an older version."""
    repeat_of: str | None = None
    """Id of the trial that this one repeats with another seed to confirm the winner."""
    stage: int | None = None
    """Number of the stage to which the trial belongs; None: the search after its stages."""
    stopped_for_good: bool = False
    """Whether a person has stopped the trial, so that ``resume`` does not continue it."""

    def __repr__(self) -> str:
        """Short text for notebooks and lists, such as ``<trial 0007: finished, 0.31, train.lr=0.002>``."""
        values = [short(value) for value in self.all_values()] or ["no value"]
        params = [f"{path}={short(value)}" for path, value in self.params.items()]
        return f"<trial {', '.join([f'{self.trial}: {self.state}', *values, *params])}>"

    @property
    def saved(self) -> Weights | None:
        """Step and objective values of the weights in ``checkpoint``; None without a checkpoint, or in the record of an
        older version."""
        return self.weights.get("best" if "best" in self.checkpoints else "last") if self.checkpoints else None

    @property
    def other_weights(self) -> Weights | None:
        """Step and objective values of the weights in ``checkpoint`` if they are not from the step of the trial's
        value, else None."""
        saved = self.saved
        if saved is None or self.best_step is None:
            return None
        measured_again = saved.values not in ((), self.all_values())
        return saved if saved.step != self.best_step or measured_again else None

    @property
    def may_be_best(self) -> bool:
        """Whether the trial can be the best: it has not failed, and has exceeded no limit."""
        return self.state != "failed" and self.violation is None

    def all_values(self) -> tuple[float, ...]:
        """Return the value of each objective; empty if the trial has reported none."""
        return self.values or (() if self.value is None else (self.value,))

    def shown_value(self) -> float | list[float | None] | None:
        """Return the value in the form of ``--json``: a number, or a list with one for each objective."""
        return [finite(value) for value in self.values] if self.values else finite(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return the trial in the form of ``--json``."""
        return {
            "trial": self.trial,
            "state": self.state,
            "value": self.shown_value(),
            "params": self.params,
            "run_id": self.run_id,
            "steps": self.steps,
            "attempts": self.attempts,
            **({"repeat_of": self.repeat_of} if self.repeat_of is not None else {}),
            **({"stage": self.stage} if self.stage is not None else {}),
        }


@dataclass(frozen=True, kw_only=True)
class MlflowIds:
    """Ids of a sweep in MLflow."""

    tracking_uri: str
    experiment_id: str
    run_id: str

    def as_json(self) -> dict[str, str]:
        """Return the ids in the form of ``--json``, without a password in the URI."""
        return asdict(self) | {"tracking_uri": redact_uri(self.tracking_uri)}


@dataclass(frozen=True, kw_only=True)
class SweepTime:
    """Durations of a sweep, in seconds, and its cost."""

    wall_s: float = 0.0
    """Time that the sweep's drivers ran, excluding the pauses between them."""
    train_s: float = 0.0
    """Time that trials trained, summed over all trials."""
    goodput: float = 0.0
    """Share of the workers' time in which they computed steps that were kept. In the record of an older version: share
    in which trials trained."""
    account: TimeAccount | None = None
    """Time of the workers by activity; None in the record of an older version."""
    cpu_s: float = 0.0
    """CPU-seconds that trials held."""
    gpu_s: float = 0.0
    """GPU-seconds that trials held."""
    cost: float = 0.0
    """Cost of the CPUs and GPUs that trials held, in the currency of the prices in ``search.stop.cost``; 0 without
    prices."""
    sessions: tuple[Session, ...] = ()
    """Sessions of the sweep's drivers, in order; empty in a record of an older version."""

    def as_json(self) -> dict[str, Any]:
        """Return the durations in the form of ``--json``."""
        durations: dict[str, Any] = {"wall_s": self.wall_s, "train_s": self.train_s, "goodput": self.goodput}
        return durations if self.account is None else {**durations, "account": self.account.as_json()}


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    """Summary of a sweep without its trials, for one line of ``list``."""

    sweep: str
    """The sweep's name."""
    conf: str
    """The ``conf=`` with which the sweep was started."""
    experiment: str
    """Name of the sweep's MLflow experiment."""
    experiment_id: str
    """MLflow's id of the experiment."""
    status: str
    """One of running, finished, stopped, failed, interrupted."""
    metrics: tuple[str, ...]
    """Names of the objectives' metrics."""
    modes: tuple[str, ...]
    """``min`` or ``max`` for each metric."""
    best: float | None
    """Best value of the first objective."""
    counts: dict[str, int]
    """Trials by state."""
    started: float
    """Unix time of the sweep's start."""
    wall_s: float
    """Seconds that the sweep's drivers ran, excluding the pauses between them."""
    run_id: str
    """MLflow's id of the sweep's parent run."""
    planned: int | None = None
    """Planned number of trials; None in the record of an older version."""
    heartbeat: float = 0.0
    """Unix time of the driver's last sign of life."""
    account: TimeAccount | None = None
    """Account of the workers' time; None in the record of an older version, and before the first trial."""

    def as_json(self) -> dict[str, Any]:
        """Return the line in the form of ``list --json``."""
        return {
            "sweep": self.sweep,
            "conf": self.conf,
            "experiment": self.experiment,
            "status": self.status,
            "metric": one_or_all(self.metrics),
            "mode": one_or_all(self.modes),
            "best": finite(self.best),
            "counts": self.counts,
            "started": self.started,
            "wall_s": self.wall_s,
            "run_id": self.run_id,
        }


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """Record of one sweep with its trials."""

    sweep: str
    """The sweep's name."""
    status: str
    """One of running, finished, stopped, failed, interrupted."""
    metrics: tuple[str, ...]
    """Names of the objectives' metrics."""
    modes: tuple[str, ...]
    """``min`` or ``max`` for each metric."""
    counts: dict[str, int]
    """Trials by state."""
    front: list[TrialRecord]
    """The best trial, or with several objectives the Pareto front; empty if no trial has a value."""
    mlflow: MlflowIds
    """Ids of the sweep in MLflow."""
    trials: list[TrialRecord]
    """All trials of the search, in the order of their ids."""
    time: SweepTime
    """Durations and cost of the sweep."""
    conf: str
    """The ``conf=`` with which the sweep was started."""
    started: float
    """Unix time of the sweep's start."""
    experiment: str = ""
    """Name of the sweep's MLflow experiment."""
    command: str = ""
    """The command line that started the sweep."""
    planned: int | None = None
    """Planned number of trials; None in the record of an older version."""
    points: int | None = None
    """Number of all points of a small space or grid; None for any other space, or in the record of an older version."""
    tags: dict[str, str] = field(default_factory=dict)
    """All tags of the parent run."""
    repeats: list[TrialRecord] = field(default_factory=list)
    """Trials that repeat the best ones with other seeds, in the order of their ids."""
    confirmation: Confirmation | None = None
    """Result of the repeats; None if the sweep does not confirm its winner."""
    staged: list[TrialRecord] = field(default_factory=list)
    """Trials of the stages of the search, in the order of their ids."""
    stages: tuple[StageResult, ...] = ()
    """Result of each stage that has begun, with the rank agreement with the stage or search that follows."""
    forecast: Forecast | None = None
    """Forecast of a sweep that has not ended; None for an ended sweep, or before the first trial has ended."""

    @property
    def all_trials(self) -> list[TrialRecord]:
        """All trials: those of the search's stages, those of the search itself, then the repeats."""
        return [*self.staged, *self.trials, *self.repeats]

    @property
    def metric(self) -> str:
        """The first objective's metric."""
        return self.metrics[0]

    @property
    def mode(self) -> str:
        """The first objective's mode, ``min`` or ``max``."""
        return self.modes[0]

    @property
    def best(self) -> TrialRecord | None:
        """The best trial, by the first objective; None if there is none."""
        return self.front[0] if self.front else None

    def _is_interrupted(self, trial: TrialRecord) -> bool:
        """Whether the sweep ended before a trial did."""
        ended_with_it = self.status in ("interrupted", "stopped") and not trial.stopped_for_good
        return trial.state == "running" or (trial.state == "stopped" and ended_with_it)

    def settled(self) -> SweepRecord:
        """Return the record as shown to users: when the sweep is not running, a trial that ``resume`` would continue
        counts as interrupted."""
        if self.status == "running" or not any(map(self._is_interrupted, self.all_trials)):
            return self

        def settle(trials: list[TrialRecord]) -> list[TrialRecord]:
            return [replace(each, state=INTERRUPTED) if self._is_interrupted(each) else each for each in trials]

        counts = dict(self.counts)
        for trial in filter(self._is_interrupted, self.trials):
            counts[trial.state] = max(0, counts.get(trial.state, 0) - 1)
            counts[INTERRUPTED] = counts.get(INTERRUPTED, 0) + 1
        return replace(
            self,
            counts=counts,
            trials=settle(self.trials),
            front=settle(self.front),
            repeats=settle(self.repeats),
            staged=settle(self.staged),
        )

    def elapsed(self, moment: float) -> float:
        """Return the seconds that the sweep had run until a moment, excluding the pauses between its drivers.

        All durations and time axes of a sweep use this measure; at the sweep's end it equals ``SweepTime.wall_s``.

        Args:
            moment: Unix time.
        """
        return sum(max(0.0, min(moment, ended) - began) for began, ended in _sessions(self))

    def took(self, trial: TrialRecord) -> float | None:
        """Return a trial's duration in seconds, until now while it runs, excluding the pauses between drivers; None if
        its start is not recorded."""
        if trial.started is None:
            return None
        return max(0.0, self.elapsed(trial.ended or time.time()) - self.elapsed(trial.started))

    def as_json(self) -> dict[str, Any]:
        """Return the document that ``run``, ``show`` and ``resume`` print with ``--json``."""
        front = [
            {
                "trial": trial.trial,
                "value": trial.shown_value(),
                "params": trial.params,
                "run_id": trial.run_id,
                "checkpoint": trial.checkpoint,
                **({} if (other := trial.other_weights) is None else {"weights": _weights_as_json(other)}),
            }
            for trial in self.front
        ]
        confirmed: dict[str, Any] = {}
        if self.confirmation is not None:
            repeats = [trial.as_json() for trial in self.repeats]
            confirmed = {"confirmation": self.confirmation.as_json(), "repeats": repeats}
        return {
            "sweep": self.sweep,
            "status": self.status,
            "metric": one_or_all(self.metrics),
            "mode": one_or_all(self.modes),
            "counts": self.counts,
            "best": front if len(self.metrics) > 1 else front[0] if front else None,
            "mlflow": self.mlflow.as_json(),
            "trials": [trial.as_json() for trial in self.trials],
            "time": self.time.as_json(),
            **confirmed,
            **({} if not self.stages else {"stages": [self._stage_as_json(each) for each in self.stages]}),
            **({} if self.forecast is None else {"forecast": self.forecast.as_json()}),
        }

    def _stage_as_json(self, result: StageResult) -> dict[str, Any]:
        return {**result.as_json(), "trials": [each.as_json() for each in self.staged if each.stage == result.stage]}


def _sessions(record: SweepRecord) -> tuple[Session, ...]:
    """Return the start and end of each driver's session, in order; the end is infinite while a driver runs, and for an
    older version's record."""
    known = record.time.sessions or ((record.started, math.inf),)
    return (*known[:-1], (known[-1][0], math.inf)) if record.status == "running" else known


def last_update(record: SweepRecord) -> float:
    """Unix time of the last update of a sweep's time by its driver."""
    return record.time.sessions[-1][1] if record.time.sessions else record.started + record.time.wall_s


def ended_spans(record: SweepRecord, trial: TrialRecord, until: float | None = None) -> list[tuple[Span, float]]:
    """Return each span of a trial with the Unix time at which it ended.

    If its workers did not report that, it is the time at which the attempt failed, the trial got other workers or
    ended, or its driver gave its last sign of life, whichever is first.

    Args:
        record: The sweep.
        trial: The trial.
        until: End of a span whose workers still train; default: the driver's last update.
    """
    last, sessions = last_update(record), _sessions(record)
    known = [*(each.ended for each in trial.failures), *(each.held for each in trial.spans), trial.ended]

    def end(span: Span) -> float:
        if span.ended is not None:
            return span.ended
        of_session = next((ended for began, ended in sessions if began <= span.held <= ended), span.trained)
        found = min([of_session, *(each for each in known if each is not None and each > span.held)])
        return max(span.trained, found if found < math.inf else last if until is None else until)

    return [(span, end(span)) for span in trial.spans]


def _weights_as_json(weights: Weights) -> dict[str, Any]:
    """Return weights in the form of ``--json``."""
    values = [finite(value) for value in weights.values]
    return {"step": weights.step, "value": None if not values else values[0] if len(values) == 1 else values}


def one_or_all(names: tuple[str, ...]) -> str | list[str]:
    """Return metrics or modes in the form of ``--json``: a single name for one objective, otherwise a list."""
    return names[0] if len(names) == 1 else list(names)
