"""Where callers ask for sweeps: what they ask is checked as on a terminal, and by what the operator allows; then it is
put into the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Engine

from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep import compose_sweep
from sweeps.config.service import Service
from sweeps.driver.reproduce import plan_reproduction
from sweeps.errors import UnknownName, UserError
from sweeps.plan.export import choose, config_of
from sweeps.plan.extend import ask_driver, read_changes
from sweeps.plan.retrain import plan_retraining
from sweeps.plan.saved_sweep import reopened
from sweeps.registry.names import check_registration
from sweeps.report.folder import report_folder
from sweeps.service.auth.config_policy import ConfigPolicy
from sweeps.service.auth.models import check_model
from sweeps.service.auth.principal import Principal, project_of
from sweeps.service.auth.priorities import check_priority
from sweeps.service.clock import Clock
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.driver_stops import DriverStops
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.planner import Planner
from sweeps.service.queue.plans import Planned, Plans, here
from sweeps.service.queue.requests import Extend, Reproduce, Request, Resume, Retrain, Run
from sweeps.service.queue.runner import JobRunner
from sweeps.service.record_cache import RecordCache
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.firing import fire_now
from sweeps.tracking.reader import load_sweep
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from sweeps.registry.register import RegisteredModel

T = TypeVar("T")


class Commands:
    """Takes what is asked. Every call raises ``UserError`` for a mistake in it, in the terminal's words."""

    def __init__(
        self,
        config: Service,
        config_dirs: Sequence[Path],
        engine: Engine,
        clock: Clock,
        runner: JobRunner,
        records: RecordCache,
        planner: Planner,
    ) -> None:
        self._config, self._config_dirs = config, config_dirs
        self._engine, self._clock, self._runner, self._records = engine, clock, runner, records
        self._plans = Plans(config, tuple(config_dirs))
        self._planner = planner
        self._stops = DriverStops()
        self._policy = ConfigPolicy(config.access, tracking_uri=config.tracking_uri, output_dir=config.output_dir)

    # --- a new sweep --------------------------------------------------------------------------------------------

    def plan(self, principal: Principal, asked: Run) -> Planned:
        """What ``run`` would do; starts nothing."""
        return self._made(principal, self._plans.run, asked)

    def run(self, principal: Principal, asked: Run, *, project: str | None = None, priority: int = 0) -> Job:
        """Run a sweep."""
        plan = self.plan(principal, asked)
        placed = asked.model_copy(update={"overrides": here(self._config, asked.overrides)})
        return self._submit(principal, placed, plan.name, project, priority)

    def plan_retraining(self, principal: Principal, asked: Retrain) -> Planned:
        """What ``retrain`` would do; starts nothing."""
        record = self._record(principal, asked.sweep)
        plan = self._made(principal, self._plans.retrain, record, asked)
        if not asked.no_register:
            self._check_model(principal, asked.register_as or record.conf)
        return plan

    def retrain(self, principal: Principal, asked: Retrain, *, project: str | None = None, priority: int = 0) -> Job:
        """Train one trial with its full budget."""
        plan = self.plan_retraining(principal, asked)
        placed = asked.model_copy(update={"overrides": here(self._config, asked.overrides)})
        return self._submit(principal, placed, plan.name, project, priority)

    def plan_reproduction(self, principal: Principal, asked: Reproduce) -> Planned:
        """What ``reproduce`` would do; starts nothing."""
        self._records.sweep(principal, asked.sweep)
        return self._made(principal, self._plans.reproduce, asked)

    def reproduce(
        self, principal: Principal, asked: Reproduce, *, project: str | None = None, priority: int = 0
    ) -> Job:
        """Run a sweep, or one of its trials, once more."""
        plan = self.plan_reproduction(principal, asked)
        return self._submit(principal, asked, plan.name, project, priority)

    # --- one that there is --------------------------------------------------------------------------------------

    def resume(self, principal: Principal, asked: Resume, *, priority: int = 0) -> Job:
        """Go on with a sweep that was interrupted or stopped."""
        record = self._record(principal, asked.sweep)
        self._check_ended(record)
        self._made(principal, self._plans.extend, record, ())
        return self._submit(principal, asked, record.sweep, None, priority)

    def extend(self, principal: Principal, asked: Extend, *, priority: int = 0) -> Job | str:
        """Let a sweep go further: one that runs is told to, and what it answers is returned; one that has ended goes on
        as a job."""
        record = self._record(principal, asked.sweep)
        folder, changes = self._made(principal, self._plans.extend, record, asked.changes)
        answer = ask_driver(record, folder, changes)
        if answer is not None:
            self._records.forget(record.sweep)
            return answer
        return self._submit(principal, asked, record.sweep, None, priority)

    def stop(self, principal: Principal, sweep: str, trial: str | None = None) -> None:
        """Tell a sweep to end, or one of its trials. It saves its state first: that is not waited for."""
        if trial is None:
            with writing(self._engine) as connection:
                own = [job for job in jobs.of_current_sweep(connection, sweep) if not job.has_ended]
                if own and self._records.exists(principal, sweep):
                    for job in own:
                        jobs.request_stop(connection, job.id, self._clock.now())
                    self._runner.wake()
                    return
        self._stops.send(self._record(principal, sweep), trial)
        self._records.forget(sweep)

    def register(
        self, principal: Principal, sweep: str, model: str, *, trial: str | None, alias: str, merged: bool
    ) -> RegisteredModel:
        """Make a trial's checkpoint a version in MLflow's model registry."""
        from sweeps.registry.register import register

        record = self._record(principal, sweep)
        chosen = choose(record, trial)
        check_registration(config_of(record, chosen), model, alias, merged=merged)
        self._check_model(principal, model)
        return register(record, chosen, model, alias, merged=merged)

    def make_report(self, principal: Principal, sweep: str) -> None:
        """Make a sweep's report, also while it runs."""
        from sweeps.report.page.report import make_report

        record = self._records.sweep(principal, sweep)
        make_report(record, report_folder(record))

    # --- the queue ----------------------------------------------------------------------------------------------

    def cancel(self, principal: Principal, number: int) -> Job:
        """Take a waiting job out of the queue, or ask a running one to stop."""
        with writing(self._engine) as connection:
            jobs.find_visible(connection, principal, number)
            job = jobs.request_stop(connection, number, self._clock.now())
        self._runner.wake()
        return job

    def set_priority(self, principal: Principal, number: int, priority: int) -> Job:
        """Let a waiting job start earlier or later."""
        with writing(self._engine) as connection:
            jobs.find_visible(connection, principal, number)
            check_priority(principal, priority, self._config.access)
            return jobs.prioritise(connection, number, priority)

    def fire(self, principal: Principal, schedule: Definition) -> Job:
        """Fire a schedule now, in addition to the firings of its cron line."""
        with writing(self._engine) as connection:
            job = fire_now(connection, schedule, self._clock.now(), principal.user)
        self._runner.wake()
        return job

    def close(self) -> None:
        """Nothing more is told to drivers."""
        self._stops.close()

    # --- before it starts ---------------------------------------------------------------------------------------

    def check_again(self, job: Job) -> None:
        """What was allowed when it was asked for may not be any more: the operator may allow less, and a config's file
        say something else. Which sweeps it may learn from depends on who asked, and has been judged.

        Raises:
            UserError: It is not allowed, or cannot be run.
        """
        asked, begun = job.parsed_request, self._begun(job)
        changes = asked.changes if isinstance(asked, Extend) else ()
        approve = partial(self._policy.check, sees=lambda _: True)
        if isinstance(asked, Run) and begun is None:
            placed = set(here(self._config, ()))  # by the service itself
            overrides = [each for each in asked.overrides if each not in placed]
            self._policy.check_request(asked.conf, overrides)
            composition = compose_sweep(asked.conf, asked.overrides, ConfSearchPath(self._config_dirs))
            approve(composition)
            return
        if begun is not None:
            reopened(begun, read_changes(changes), approve=approve)
        elif isinstance(asked, Retrain):
            record = load_sweep(self._config.tracking_uri, asked.sweep)
            trial = choose(record, asked.trial)
            plan_retraining(record, trial, asked.overrides, self._config_dirs, asked.name, "", approve)
        elif isinstance(asked, Reproduce):
            uri = self._config.tracking_uri
            plan_reproduction(uri, asked.sweep, asked.trial, asked.name, "", self._config_dirs, approve)

    def _begun(self, job: Job) -> SweepRecord | None:
        """The job's sweep, if it has begun: it is as it was then."""
        try:
            return load_sweep(self._config.tracking_uri, job.sweep)
        except UnknownName:
            return None

    # --- inside -------------------------------------------------------------------------------------------------

    def _made(self, principal: Principal, work: Callable[..., T], *arguments: Any) -> T:
        """Result of a method of ``Plans``, for a principal."""
        return self._planner.make(principal.user, work, partial(self._sees, principal), *arguments)

    def _sees(self, principal: Principal, sweep: str) -> bool:
        """Whether there is such a sweep for a principal: in the store, too, which names others' where it misses one."""
        return any(line.summary.sweep == sweep for line in self._records.sweeps(principal).content)

    def _check_free(self, sweep: str) -> None:
        """A name belongs to who first used it, also on a terminal: with it one would get that sweep."""
        try:
            load_sweep(self._config.tracking_uri, sweep)
        except UnknownName:
            return
        raise UserError(f"name={sweep}: there is a sweep of this name already; choose another")

    def _check_model(self, principal: Principal, model: str) -> None:
        if not principal.may("admin"):
            check_model(self._config.tracking_uri, model, partial(self._records.exists, principal))

    def _record(self, principal: Principal, sweep: str) -> SweepRecord:
        """As it is now, and not as it was last seen."""
        self._records.sweep(principal, sweep)  # that it exists for the principal
        return load_sweep(self._config.tracking_uri, sweep)

    def _check_ended(self, record: SweepRecord) -> None:
        with self._engine.connect() as connection:
            open_jobs = [job for job in jobs.of_current_sweep(connection, record.sweep) if not job.has_ended]
        if open_jobs:
            raise UserError(
                f"{record.sweep} needs no resuming: job {open_jobs[0].id}, which goes on with it, is "
                f"{open_jobs[0].state}"
            )

    def _submit(self, principal: Principal, request: Request, sweep: str, project: str | None, priority: int) -> Job:
        check_priority(principal, priority, self._config.access)
        if not isinstance(request, Resume | Extend) and request.name is not None:
            self._check_free(request.name)
        with writing(self._engine) as connection:
            if project is None and (maker := jobs.creator(connection, sweep)) is not None:
                project = maker.project
            else:
                project = project_of(principal, project)
            job = jobs.submit(
                connection,
                request,
                sweep,
                user=principal.user,
                project=project,
                now=self._clock.now(),
                priority=priority,
                most_waiting=self._config.queue.waiting_per_user,
            )
        self._runner.wake()
        return job
