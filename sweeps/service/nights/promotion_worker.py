"""The promotion worker: decides the verdict of every night whose sweep has ended, exactly once, even if services die.

The state of a night is in its row, and each step continues from there: the sweep has ended; champion and challenger are
trained again, by a job that is queued in the same transaction; the better one is registered, unless its run already is
a model version; the verdict is written; the figure is added to the report. An interrupted step is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from sweeps.config.nights import Champion
from sweeps.constants import NIGHTS_ARTIFACT
from sweeps.errors import ArtifactsUnreachable, SweepsError, TrackingUnreachable, UserError
from sweeps.service.database.engine import writing
from sweeps.service.database.storage_errors import is_unavailable
from sweeps.service.nights.champion_version import champion_of, champion_point, version_from
from sweeps.service.nights.command_lines import CommandLines, StillRunning
from sweeps.service.nights.night import (
    OPEN,
    Night,
    change,
    claim,
    earlier_nights,
    holder_elsewhere,
    nights_of,
    open_nights,
    release,
)
from sweeps.service.nights.preparation import plan_of
from sweeps.service.nights.repeats import of_contender, repeats_name, repeats_overrides, values_of
from sweeps.service.nights.verdict import Found, after_repeats, after_sweep, noise_of
from sweeps.service.poller import Poller
from sweeps.service.queue import jobs
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.lost_machines import Silence
from sweeps.service.service_context import ServiceContext
from sweeps.tracking.client import connect
from sweeps.tracking.mlflow_characters import storable
from sweeps.tracking.reader import find_sweep, load_sweep
from sweeps.tracking.record import SweepRecord, TrialRecord

logger = logging.getLogger(__name__)

POLL_EVERY_S = 30.0
GIVE_UP_AFTER_S = 3600.0
"""Seconds for which the steps of a night may fail until it gets its verdict without them. Later nights wait for it, and
an attempt to register a model uploads it anew."""
STOP_TIMEOUT_S = 5.0
"""Maximum seconds to wait for the current step; the next service continues an interrupted one."""


class PromotionWorker(Poller):
    """Decides the verdicts of nights, on its own thread."""

    def __init__(
        self,
        service: ServiceContext,
        heartbeat: Heartbeat,
        decided: Callable[[], object] = lambda: None,
        window_end: Callable[[Job], float | None] = lambda _: None,
    ):
        """Make the worker, which calls ``decided`` when a night has got its verdict. ``window_end`` returns the end of
        the window in which a night's job, and so its repeats, may run."""
        super().__init__("promotion worker", service.clock, self.step, POLL_EVERY_S, stop_within_s=STOP_TIMEOUT_S)
        self._engine, self._clock, self._heartbeat = service.database, service.clock, heartbeat
        self._uri, self._config_dirs = service.config.tracking_uri, service.config_dirs
        self._decided, self._window_end = decided, window_end
        self._silences: dict[str, Silence] = {}
        """Silences of services of other hosts, by their ids."""
        self._failing_since: dict[str, float] = {}
        """Times since which the steps of nights fail, by sweep."""
        self._command_lines = CommandLines(self._uri, service.config.folder)

    def step(self) -> None:
        """Advance every open night as far as possible; those of one schedule in order."""
        with self._engine.connect() as connection:
            waiting = open_nights(connection)
        open_before = set[str]()
        for night in waiting:
            if night.schedule not in open_before and self._advance(night):
                open_before.add(night.schedule)

    def _advance(self, night: Night) -> bool:
        """Advance a night, and return whether it is still open."""
        held = claim(self._engine, night, self._heartbeat, self._lost_holder(night))
        if held is None:
            return night.verdict in OPEN
        try:
            for _ in OPEN:  # each may be followed at once by the next
                held = self._next_state(held)
            if held.verdict not in OPEN:
                self._report(held)
            self._failing_since.pop(held.sweep, None)
        except (TrackingUnreachable, StillRunning) as error:
            self._failing_since.pop(held.sweep, None)
            logger.warning("the verdict of %s waits: %s; trying again in %.0f s", held.sweep, error, POLL_EVERY_S)
        except Exception as error:
            # Any error, not only SweepsError: one night must not block other schedules.
            logger.exception("a step of the night %s failed; trying again in %.0f s", held.sweep, POLL_EVERY_S)
            held = self._after_failure(held, error)
        finally:
            release(self._engine, held, self._heartbeat.service)
        return held.verdict in OPEN

    def _lost_holder(self, night: Night) -> str | None:
        """Return the service of another host that has claimed a night, if its heartbeat no longer changes."""
        with self._engine.connect() as connection:
            found = holder_elsewhere(connection, night, self._heartbeat.host)
        if found is None:
            return None
        holder, beat = found
        silence = self._silences.setdefault(holder, Silence())
        return holder if silence.lasts(beat, self._clock.steady(), self._heartbeat.dead_after_s) else None

    def _after_failure(self, night: Night, error: Exception) -> Night:
        """Decide a night whose steps fail for too long; others of its schedule wait for it."""
        if night.verdict not in OPEN:
            return night
        if is_unavailable(error):
            self._failing_since.pop(night.sweep, None)
            return night
        now = self._clock.steady()
        if now - self._failing_since.setdefault(night.sweep, now) < GIVE_UP_AFTER_S:
            return night
        why = str(error) if isinstance(error, SweepsError) else repr(error)  # whose text may be empty, or a mere key
        reason = storable(f"the night cannot be judged: {why}")
        if night.verdict == "running":
            return self._decide(night, "failed", reason)
        return self._decide(night, "kept", f"The champion stays: {reason}")

    def _next_state(self, night: Night) -> Night:
        """Advance a night without a verdict by one step, unless it waits for a job."""
        if night.verdict == "running" and (job := self._ended_job(night.sweep)) is not None:
            return self._after_sweep(night, job)
        if night.verdict == "repeating":
            job = None if night.repeats is None else self._ended_job(night.repeats)
            if night.repeats is None or job is not None:
                return self._after_repeats(night, job)
        return night

    def _ended_job(self, sweep: str) -> Job | None:
        """Return the job that made a sweep; None while a job works on it."""
        with self._engine.connect() as connection:
            found = jobs.of_sweep(connection, sweep)
        return found[-1] if found and all(job.has_ended for job in found) else None

    # --- its sweep has ended ------------------------------------------------------------------------------------

    def _after_sweep(self, night: Night, job: Job) -> Night:
        record = find_sweep(self._uri, night.sweep)
        if record is None:
            return self._decide(night, "failed", job.error or "It left no record.")
        best, settings = record.best, night.settings.champion
        if settings is not None:
            night = self._with_current_champion(night, settings, job)
        champion = _trial_at(record, night.point)
        night = replace(
            night,
            best=None if best is None else best.value,
            champion=None if champion is None else champion.value,
            wall_s=record.time.wall_s,
            cost=record.time.cost,
            noise=noise_of(night, earlier_nights(self._engine, night)),
        )
        is_best = champion is not None and best is not None and champion.trial == best.trial
        found = after_sweep(night, earlier_nights(self._engine, night), champion_is_best=is_best)
        if found is not None:
            return self._decide(night, *found)
        assert best is not None and settings is not None
        night = replace(night, challenger=best.trial)
        if settings.repeats == 0:
            with writing(self._engine) as connection:
                return change(connection, replace(night, verdict="repeating"))
        return self._repeat(night, settings, best, job)

    def _with_current_champion(self, night: Night, settings: Champion, job: Job) -> Night:
        """Return the night with the current champion, which may have changed since the sweep began."""
        current = champion_of(self._uri, settings)
        if (None if current is None else current.version) == night.tried:
            return night
        if current is None:
            return replace(night, tried=None, version=None, point=None)
        night = replace(night, tried=current.version, version=current.version)
        try:
            point = champion_point(plan_of(job, self._config_dirs), self._uri, current)
            return replace(night, point=point, reason=None)
        except (TrackingUnreachable, ArtifactsUnreachable):
            raise  # no verdict without MLflow, and one without the champion only after a while
        except UserError as error:
            return replace(night, point=None, reason=str(error))

    def _repeat(self, night: Night, settings: Champion, best: TrialRecord, job: Job) -> Night:
        contenders = [best.params] if night.point is None else [night.point, best.params]
        request, name = job.parsed_request, repeats_name(night.sweep)
        assert isinstance(request, Run)
        overrides = [*request.overrides, *repeats_overrides(night, contenders, settings.repeats)]
        request = request.model_copy(update={"overrides": overrides, "name": name})
        try:
            with writing(self._engine) as connection:
                jobs.submit(
                    connection,
                    request,
                    name,
                    user=job.user,
                    project=job.project,
                    now=self._clock.now(),
                    priority=job.priority,
                    end_by=self._window_end(job),  # not that of the job, which includes the limit of its own time
                )
                return change(connection, replace(night, verdict="repeating", repeats=name))
        except UserError as error:
            return self._decide(night, "kept", f"The champion stays: the repeats cannot be queued: {error}")

    # --- its repeats have ended ----------------------------------------------------------------------------------

    def _after_repeats(self, night: Night, job: Job | None) -> Night:
        """Judge a night by its repeats, which a job has made, or by its own trials."""
        settings = night.settings.champion
        assert settings is not None
        record = find_sweep(self._uri, night.sweep)
        trials = [] if record is None else record.trials
        challenger = next((trial for trial in trials if trial.trial == night.challenger), None)
        if record is None or challenger is None:  # MLflow may have been restored from an earlier backup
            return self._decide(night, "kept", "The champion stays: MLflow has lost the trial to compare with it.")
        if night.repeats is None:
            champion = _trial_at(record, night.point)
            champions, challengers = [] if champion is None else [champion], [challenger]
        else:
            repeats = find_sweep(self._uri, night.repeats)
            if repeats is None:
                why = f": {job.error}" if job is not None and job.error else "."
                return self._decide(night, "kept", f"The champion stays: the repeats left no record{why}")
            record, time = repeats, repeats.time
            champions = [] if night.point is None else of_contender(record, night.point)
            challengers = of_contender(record, challenger.params)
            night = replace(night, wall_s=(night.wall_s or 0.0) + time.wall_s, cost=(night.cost or 0.0) + time.cost)
        night = replace(night, champions=values_of(champions), challengers=values_of(challengers))
        night = replace(
            night,
            noise=noise_of(night, earlier_nights(self._engine, night)),
            champion=fmean(night.champions) if night.champion is None and night.champions else night.champion,
        )
        verdict, reason = after_repeats(night, settings)
        if verdict in ("first", "promoted"):
            return self._promote(night, settings, record, challengers, (verdict, reason))
        return self._decide(night, verdict, reason)

    def _promote(
        self, night: Night, settings: Champion, record: SweepRecord, trials: Sequence[TrialRecord], found: Found
    ) -> Night:
        """Make the best of the challenger's trainings the champion, unless somebody else has made another one."""
        valued = [(trial.value, trial) for trial in trials if trial.value is not None]
        select = min if record.mode == "min" else max
        trial = select(valued, key=lambda each: each[0])[1]
        version = version_from(self._uri, settings.model, trial.run_id)
        current = champion_of(self._uri, settings)
        if version is None and (current is None or current.version == night.tried):
            version = self._command_lines.register(record.sweep, trial.trial, settings.model)
            current = champion_of(self._uri, settings)  # the registration takes minutes
        if current is not None and current.version not in (night.tried, version):
            reason = f"The champion stays: version {current.version} became it meanwhile, and was not compared."
            return self._decide(replace(night, version=current.version), "kept", reason)
        assert version is not None
        if current is None or current.version != version:
            connect(self._uri).set_registered_model_alias(settings.model, settings.alias, version)
        return self._decide(replace(night, version=version), *found)

    # --- shared by both -------------------------------------------------------------------------------------------

    def _decide(self, night: Night, verdict: Any, reason: str) -> Night:
        night = replace(night, verdict=verdict, reason=reason, decided=self._clock.now())
        with writing(self._engine) as connection:
            change(connection, night)
        logger.info("%s: %s. %s", night.sweep, verdict, reason)
        self._decided()
        return night

    def _report(self, night: Night) -> None:
        """Add the figure of the nights to the report; a failure does not affect the verdict. While the tracking store
        does not answer, each step tries again."""
        with self._engine.connect() as connection:
            nights = nights_of(connection, night.schedule, until=night.due)
        try:
            record = load_sweep(self._uri, night.sweep)
            connect(self._uri).log_text(record.mlflow.run_id, nights.as_text(), NIGHTS_ARTIFACT)
            self._command_lines.report(night.sweep)
        except (TrackingUnreachable, StillRunning) as error:
            logger.warning("the report of %s waits: %s; trying again in %.0f s", night.sweep, error, POLL_EVERY_S)
            return
        except SweepsError as error:
            logger.warning("the report of %s lacks the figure of its nights: %s", night.sweep, error)
        with writing(self._engine) as connection:
            change(connection, replace(night, reported=self._clock.now()))


def _trial_at(record: SweepRecord, point: Mapping[str, Any] | None) -> TrialRecord | None:
    """The trial at a point, if it has a value."""
    return next((trial for trial in record.trials if trial.params == point and trial.value is not None), None)
