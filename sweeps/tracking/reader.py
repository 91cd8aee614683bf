"""Functions that read recorded sweeps from MLflow: ``list_sweeps`` and ``load_sweep``. They raise
``TrackingUnreachable`` if the store does not answer."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import Any

from sweeps import constants
from sweeps.errors import ConfigError, UnknownName
from sweeps.folders.driver_lock import driver_is_alive
from sweeps.texts.suggestions import did_you_mean
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.confirmation_record import Confirmation
from sweeps.tracking.forecast_record import Forecast
from sweeps.tracking.mlflow_characters import whole_parameters
from sweeps.tracking.record import STATES, MlflowIds, SweepRecord, SweepSummary, SweepTime, TrialRecord
from sweeps.tracking.stage_results import StageResult
from sweeps.tracking.store import RawRun, fetch_runs
from sweeps.tracking.time_account import TimeAccount
from sweeps.tracking.trial_history import FailedAttempt, Span, TimedNote, Weights
from sweeps.tracking.values import from_text, number, numbers, read_list, read_tag

HEARTBEAT_TIMEOUT_S = 60.0
"""Seconds without a heartbeat after which a running sweep counts as interrupted."""
CLOCKS_DIFFER_S = 3600.0
"""Seconds without a heartbeat, by this machine's clock, after which a driver elsewhere counts as dead for certain."""
ENDED = ("finished", "failed")
"""Statuses of sweeps that have nothing left to do."""

logger = logging.getLogger(__name__)


def list_sweeps(uri: str) -> list[SweepSummary]:
    """Return a summary of each sweep in a store, newest first."""
    now = time.time()
    parents = fetch_runs(uri, {constants.TAG_KIND: "sweep"})
    return [_summary(parent, now) for parent in reversed(parents)]


def find_sweep(uri: str, name: str) -> SweepRecord | None:
    """Return one sweep as ``load_sweep`` does; None if there is no sweep of this name."""
    with suppress(UnknownName):
        return load_sweep(uri, name)
    return None


def load_sweep(uri: str, name: str, started_ms: int | None = None) -> SweepRecord:
    """Return one sweep with its trials.

    Args:
        uri: Tracking URI.
        name: Name of the sweep.
        started_ms: Start of the sweep's own run, if the caller knows it: no other one is returned. Two users whose
            experiments are hidden from each other may give their sweeps the same name; without it, the sweep that
            started first is returned.

    Raises:
        UnknownName: There is no such sweep; the message suggests similar names.
    """
    return record_of(uri, *fetch_sweep(uri, name, started_ms))


def fetch_sweep(uri: str, name: str, started_ms: int | None = None) -> tuple[RawRun, list[RawRun]]:
    """Return a sweep's own run, and the runs of its trials; for arguments and errors see ``load_sweep``."""
    if not isinstance(name, str):  # such as the record that `sweeps.run` returned
        raise ConfigError(
            f"sweep={name!r}: must be the name of one sweep, which is .sweep of its record; functions of several "
            "sweeps take each name as an argument, as in 'a', 'b'"
        )
    runs = fetch_runs(uri, {constants.TAG_SWEEP: name})
    sweeps = [run for run in runs if run.tags.get(constants.TAG_KIND) == "sweep"]
    parents = [run for run in sweeps if started_ms in (None, run.started)]
    if not parents:
        known = {run.tags[constants.TAG_SWEEP] for run in fetch_runs(uri, {constants.TAG_KIND: "sweep"})}
        hint = "; another user's has this name" if sweeps else did_you_mean(name, known)
        raise UnknownName(f"there is no sweep {name!r} in {redact_uri(uri)}{hint}")
    if len(parents) > 1:
        _warn_of_namesakes(name, tuple(run.experiment for run in parents))
    parent = parents[0]
    trials = [run for run in runs if run.tags.get("mlflow.parentRunId") == parent.run_id]
    lost = {*recorded_best(parent.tags)} - {run.tags.get(constants.TAG_TRIAL, "") for run in trials}
    return parent, [*trials, *(_deleted(uri, parent, lost) if lost else ())]


@cache
def _warn_of_namesakes(name: str, experiments: Sequence[str]) -> None:
    """Log a warning, once, that several sweeps have a name."""
    logger.warning(
        "%d sweeps are named %s, in the experiments %s; this is about the one that started first",
        *(len(experiments), name, ", ".join(experiments)),
    )


def record_of(uri: str, parent: RawRun, runs: Iterable[RawRun]) -> SweepRecord:
    """Return a sweep's record, given its own run and those of its trials."""
    tags, now, best = parent.tags, time.time(), recorded_best(parent.tags)
    # A run of a restored backup may lack the value.
    value = {constants.TAG_VALUE: tags.get(constants.TAG_BEST_VALUE, "")}
    all_trials = _trials(
        replace(run, tags=value | run.tags) if [run.tags.get(constants.TAG_TRIAL)] == best[:1] else run for run in runs
    )
    trials = [trial for trial in all_trials if trial.repeat_of is None and trial.stage is None]
    by_id = {trial.trial: trial for trial in trials}
    status = _status(parent, now)
    return SweepRecord(
        sweep=tags[constants.TAG_SWEEP],
        status=status,
        metrics=_names(tags.get(constants.TAG_METRIC, "")),
        modes=_names(tags.get(constants.TAG_MODE, "")),
        counts={state: sum(trial.state == state for trial in trials) for state in STATES},
        front=[by_id[trial] for trial in best if trial in by_id and by_id[trial].all_values()],
        mlflow=ids_of(uri, parent),
        trials=trials,
        time=_time(parent, now),
        conf=tags.get(constants.TAG_CONF, ""),
        started=parent.started / 1000,
        experiment=parent.experiment,
        command=tags.get(constants.TAG_COMMAND, ""),
        planned=_count(tags, constants.TAG_PLANNED),
        points=_count(tags, constants.TAG_POINTS),
        tags=tags,
        repeats=[trial for trial in all_trials if trial.repeat_of is not None],
        staged=[trial for trial in all_trials if trial.stage is not None],
        stages=read_list(tags.get(constants.TAG_STAGES), StageResult.from_json),
        confirmation=read_tag(tags.get(constants.TAG_CONFIRMATION), Confirmation.from_json, None),
        forecast=None if status in ENDED else read_tag(tags.get(constants.TAG_FORECAST), Forecast.from_json, None),
    )


def ids_of(uri: str, parent: RawRun) -> MlflowIds:
    """Return the ids of a sweep, given its own run."""
    return MlflowIds(tracking_uri=uri, experiment_id=parent.experiment_id, run_id=parent.run_id)


def recorded_best(tags: Mapping[str, str]) -> list[str]:
    """Return the ids of a sweep's best trials, as its own run has them."""
    return [trial for trial in _names(tags.get(constants.TAG_BEST_TRIAL, "")) if trial]


def _deleted(uri: str, parent: RawRun, trials: Collection[str]) -> list[RawRun]:
    """Return the runs of a sweep's best trials that a user has deleted in MLflow; they still belong to the result. If
    MLflow has removed a run for good, its value and parameters come from the sweep's own run."""
    sweep = {constants.TAG_SWEEP: parent.tags[constants.TAG_SWEEP], constants.TAG_KIND: "trial"}
    runs = fetch_runs(uri, sweep, deleted=True)
    kept = [run for run in runs if run.tags.get("mlflow.parentRunId") == parent.run_id]
    found = [run for run in kept if run.tags.get(constants.TAG_TRIAL) in trials]
    if found or len(trials) > 1:
        return found
    (trial,) = trials
    prefix = constants.TAG_BEST_PARAMETER_PREFIX
    params = {tag.removeprefix(prefix): text for tag, text in parent.tags.items() if tag.startswith(prefix)}
    tags = {constants.TAG_TRIAL: trial, constants.TAG_STATE: "finished"}
    return [replace(parent, run_id="", tags=tags, params=params)]


def _summary(parent: RawRun, now: float) -> SweepSummary:
    tags, time = parent.tags, _time(parent, now)
    return SweepSummary(
        sweep=tags.get(constants.TAG_SWEEP, ""),
        conf=tags.get(constants.TAG_CONF, ""),
        experiment=parent.experiment,
        experiment_id=parent.experiment_id,
        status=_status(parent, now),
        metrics=_names(tags.get(constants.TAG_METRIC, "")),
        modes=_names(tags.get(constants.TAG_MODE, "")),
        best=next(iter(numbers(tags.get(constants.TAG_BEST_VALUE))), None),
        counts=read_tag(tags.get(constants.TAG_COUNTS), _counts, _counts({})),
        started=parent.started / 1000,
        wall_s=time.wall_s,
        run_id=parent.run_id,
        planned=_count(tags, constants.TAG_PLANNED),
        heartbeat=number(tags.get(constants.TAG_HEARTBEAT)) or parent.started / 1000,
        account=time.account,
    )


def _count(tags: Mapping[str, str], tag: str) -> int | None:
    """Return the whole number in a tag; None if there is none."""
    count = number(tags.get(tag))
    return None if count is None or not isfinite(count) else int(count)


def _counts(counts: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of trials in each state."""
    return {state: int(counts.get(state, 0)) for state in STATES}


def _status(parent: RawRun, now: float) -> str:
    status = parent.tags.get(constants.TAG_STATE, "interrupted")
    heartbeat = number(parent.tags.get(constants.TAG_HEARTBEAT)) or parent.started / 1000
    if status != "running" or now - heartbeat <= HEARTBEAT_TIMEOUT_S:
        return status
    # The driver may be suspended, or have another clock.
    return "running" if driver_is_alive(Path(parent.tags.get(constants.TAG_FOLDER, ""))) else "interrupted"


def _time(parent: RawRun, now: float) -> SweepTime:
    heartbeat = number(parent.tags.get(constants.TAG_HEARTBEAT))
    running = _status(parent, now) == "running"
    # The driver's last update of the time; before the first one, the time until its last sign of life.
    until = now if running else (parent.ended / 1000 if parent.ended else heartbeat or parent.started / 1000)
    written = partial(_written_time, wall_s=until - parent.started / 1000)
    return read_tag(parent.tags.get(constants.TAG_TIME), written, written({}))


def _written_time(written: Mapping[str, Any], wall_s: float) -> SweepTime:
    """Return the durations in a tag, with ``wall_s`` as the wall time if the tag has none."""
    return SweepTime(
        wall_s=float(written.get("wall_s", wall_s)),
        train_s=float(written.get("train_s", 0.0)),
        goodput=float(written.get("goodput", 0.0)),
        account=TimeAccount.from_json(written["account"]) if "account" in written else None,
        cpu_s=float(written.get("cpu_s", 0.0)),
        gpu_s=float(written.get("gpu_s", 0.0)),
        cost=float(written.get("cost", 0.0)),
        sessions=tuple((float(began), float(ended)) for began, ended in written.get("sessions", ())),
    )


def one_each(runs: Iterable[RawRun]) -> dict[str, RawRun]:
    """Return the run of each trial, by trial.

    If a server died between creating a run and answering, the run may exist twice; then the run with content counts.
    """
    by_trial: dict[str, RawRun] = {}
    for run in runs:
        trial = run.tags.get(constants.TAG_TRIAL, "")
        if trial not in by_trial or _content(run) >= _content(by_trial[trial]):
            by_trial[trial] = run
    return by_trial


def _content(run: RawRun) -> tuple[int, bool]:
    return _count(run.tags, constants.TAG_STEPS) or 0, run.tags.get(constants.TAG_STATE) != "running"


def _trials(runs: Iterable[RawRun]) -> list[TrialRecord]:
    return sorted(map(_trial, one_each(runs).values()), key=lambda trial: (len(trial.trial), trial.trial))


def _trial(run: RawRun) -> TrialRecord:
    tags = run.tags
    state = tags.get(constants.TAG_STATE, "running")
    values = numbers(tags.get(constants.TAG_VALUE))
    return TrialRecord(
        trial=tags.get(constants.TAG_TRIAL, ""),
        state=state,
        value=values[0] if values else None,
        values=values if len(values) > 1 else (),
        best_step=_count(tags, constants.TAG_VALUE_STEP),
        violation=tags.get(constants.TAG_VIOLATION),
        params={path: from_text(text) for path, text in sorted(whole_parameters(run.params, tags).items())},
        run_id=run.run_id,
        steps=_count(tags, constants.TAG_STEPS) or 0,
        attempts=_count(tags, constants.TAG_ATTEMPT) or 1,
        started=run.started / 1000,
        ended=None if state == "running" or run.ended is None else run.ended / 1000,
        checkpoint=tags.get(constants.TAG_CHECKPOINT_BEST) or tags.get(constants.TAG_CHECKPOINT_LAST),
        error=tags.get(constants.TAG_ERROR),
        pool=tags.get(constants.TAG_POOL),
        spans=read_list(tags.get(constants.TAG_SPANS), Span.from_json),
        account=read_tag(tags.get(constants.TAG_ACCOUNT), TimeAccount.from_json, None),
        failures=read_list(tags.get(constants.TAG_FAILURES), lambda each: FailedAttempt(**each)),
        notes=read_list(tags.get(constants.TAG_NOTES), lambda each: TimedNote(**each)),
        checkpoints={kind: tags[tag] for kind, tag in constants.CHECKPOINT_TAGS.items() if tag in tags},
        weights={
            kind: found
            for kind, tag in constants.WEIGHTS_TAGS.items()
            if (found := read_tag(tags.get(tag), Weights.from_json, None)) is not None
        },
        repeat_of=tags.get(constants.TAG_REPEAT_OF),
        stage=_count(tags, constants.TAG_STAGE),
        stopped_for_good=constants.TAG_STOPPED_FOR_GOOD in tags,
    )


def _names(text: str) -> tuple[str, ...]:
    """Return the names in a tag: a single name, or several as a JSON list."""
    with suppress(ValueError):
        names = json.loads(text)
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    return (text,)
