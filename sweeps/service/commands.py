"""Commands of the API and the web pages: each request is checked as on the command line and by the operator's policy,
and then queued as a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import make_url

from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.sweep_config import compose_sweep
from sweeps.config.service import Service
from sweeps.driver.reproduce import plan_reproduction
from sweeps.errors import ConfigError, UserError
from sweeps.plan.export import choose, config_of
from sweeps.plan.extend import ask_driver, read_changes
from sweeps.plan.retrain import plan_retraining
from sweeps.plan.saved_sweep import reopened
from sweeps.registry.model_names import check_registration
from sweeps.registry.ownership import ModelRights
from sweeps.report.plan_summary import PlanPreview
from sweeps.report.report_folder import report_folder
from sweeps.service.audit import AUDIT_FILE, Audit
from sweeps.service.auth import tokens
from sweeps.service.auth.models import check_model
from sweeps.service.auth.principal import Principal, project_of
from sweeps.service.auth.priorities import check_priority
from sweeps.service.database.engine import writing
from sweeps.service.past_sweeps import PastSweeps
from sweeps.service.queue import jobs
from sweeps.service.queue.driver_stops import DriverStops
from sweeps.service.queue.job_requests import Extend, Reproduce, Request, Resume, Retrain, Run
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.planner import Planner
from sweeps.service.queue.plans import Planned, Plans, with_output_dir
from sweeps.service.queue.runner import JobRunner
from sweeps.service.record_cache import RecordCache
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.firing import fire_now
from sweeps.service.schedules.saved import FOLDER
from sweeps.service.service_log import LOG_FILE
from sweeps.service.surroundings import Surroundings
from sweeps.tracking.reader import find_sweep, load_sweep
from sweeps.tracking.record import SweepRecord

if TYPE_CHECKING:
    from sweeps.registry.register import RegisteredModel

T = TypeVar("T")


class Commands:
    """Commands about sweeps. Each method raises ``UserError`` for a mistake in the request, as the command line
    does."""

    def __init__(
        self,
        service: Surroundings,
        runner: JobRunner,
        records: RecordCache,
        planner: Planner,
        past_sweeps: PastSweeps,
        audit: Audit,
    ) -> None:
        self._config, self._config_dirs = service.config, service.config_dirs
        self._engine, self._clock, self._runner, self._records = service.database, service.clock, runner, records
        self._plans = Plans(service.config, tuple(service.config_dirs))
        self._planner, self._past_sweeps, self._audit = planner, past_sweeps, audit
        self._stops = DriverStops()

    # --- new sweeps --------------------------------------------------------------------------------------------

    def plan(self, principal: Principal, request: Run) -> Planned:
        """Plan a ``run`` without starting it."""
        return self._plan(principal, self._plans.run, request, self._past_sweeps.of(principal, request.conf))

    def run(self, principal: Principal, request: Run, *, project: str | None = None, priority: int = 0) -> Job:
        """Queue a new sweep."""
        plan = self._plan(principal, self._plans.run, request, ())  # nobody asks for its expected time
        placed = request.model_copy(update={"overrides": with_output_dir(self._config, request.overrides)})
        return self._submit(principal, placed, plan.name, project, priority)

    def plan_retraining(self, principal: Principal, request: Retrain) -> Planned:
        """Plan a ``retrain`` without starting it."""
        record = self._record(principal, request.sweep)
        past = self._past_sweeps.of(principal, record.conf)
        plan = self._plan(principal, self._plans.retrain, record, request, past)
        if plan.model is not None:
            self._check_model(principal, plan.model, "")
        return plan

    def retrain(self, principal: Principal, request: Retrain, *, project: str | None = None, priority: int = 0) -> Job:
        """Queue the training of one trial with its full budget."""
        plan = self.plan_retraining(principal, request)
        model = {"register_as": plan.model, "no_register": plan.model is None}
        placed = request.model_copy(update={"overrides": with_output_dir(self._config, request.overrides), **model})
        return self._submit(principal, placed, plan.name, project, priority)

    def plan_reproduction(self, principal: Principal, request: Reproduce) -> Planned:
        """Plan a ``reproduce`` without starting it."""
        self._records.sweep(principal, request.sweep)
        return self._plan(principal, self._plans.reproduce, request)

    def reproduce(
        self, principal: Principal, request: Reproduce, *, project: str | None = None, priority: int = 0
    ) -> Job:
        """Queue a repetition of a sweep, or of one of its trials."""
        plan = self.plan_reproduction(principal, request)
        return self._submit(principal, request, plan.name, project, priority)

    def plan_schedule(self, principal: Principal, schedule: Definition, due: float) -> PlanPreview:
        """Plan the sweep of a saved schedule's firing without starting it. Both the principal and the schedule's user
        must be allowed what it reaches."""
        return self._plan(principal, self._plans.schedule, schedule, due, also=[self._owner(schedule)])

    # --- existing sweeps ---------------------------------------------------------------------------------------

    def resume(self, principal: Principal, request: Resume, *, priority: int = 0) -> Job:
        """Queue the resumption of a sweep that was interrupted or stopped."""
        record = self._record(principal, request.sweep)
        self._check_ended(record)
        self._plan(principal, self._plans.extend, record, ())
        return self._submit(principal, request, record.sweep, None, priority)

    def extend(self, principal: Principal, request: Extend, *, priority: int = 0) -> Job | str:
        """Extend a sweep. If it runs, its driver extends it at once and its answer is returned; otherwise it is
        queued."""
        record = self._record(principal, request.sweep)
        folder, changes = self._plan(principal, self._plans.extend, record, request.changes)
        answer = ask_driver(record, folder, changes)
        if answer is not None:
            self._records.forget(record.sweep)
            self._audit.note(principal, "extended", sweep=record.sweep, changes=" ".join(request.changes))
            return answer
        return self._submit(principal, request, record.sweep, None, priority)

    def stop(self, principal: Principal, sweep: str, trial: str | None = None) -> None:
        """Stop a sweep, or one of its trials, without waiting for the end."""
        if trial is None:
            with writing(self._engine) as connection:
                own = [job for job in jobs.of_current_sweep(connection, sweep) if not job.has_ended]
                if own and self._records.exists(principal, sweep):
                    for job in own:
                        jobs.request_stop(connection, job.id, self._clock.now())
                else:
                    own = []
            if own:
                self._runner.wake()
                self._audit.note(principal, "stopped", sweep=sweep)
                return
        self._stops.send(self._record(principal, sweep), trial)
        self._records.forget(sweep)
        self._audit.note(principal, "stopped", sweep=sweep, trial=trial)

    def register(
        self, principal: Principal, sweep: str, model: str, *, trial: str | None, alias: str, merged: bool
    ) -> RegisteredModel:
        """Register a trial's checkpoint as a model version in MLflow."""
        record = self._record(principal, sweep)
        chosen = choose(record, trial)
        check_registration(config_of(record, chosen), model, alias, merged=merged, is_trained=True)
        with self._engine.connect() as connection:
            maker = jobs.creator(connection, sweep)
        project = project_of(principal, None) if maker is None else maker.project
        rights = self._check_model(principal, model, project, adopt=True)
        from sweeps.registry.register import register  # torch, which takes seconds

        made = register(record, chosen, model, alias, merged=merged, rights=rights)
        self._audit.note(principal, "registered", model=model, version=made.version, alias=alias, sweep=sweep)
        return made

    def make_report(self, principal: Principal, sweep: str) -> None:
        """Make a sweep's report, even while it runs."""
        record = self._records.sweep(principal, sweep)
        from sweeps.report.page.report import make_report  # matplotlib and plotly, which take seconds

        make_report(record, report_folder(record))

    # --- the queue ----------------------------------------------------------------------------------------------

    def cancel(self, principal: Principal, number: int) -> Job:
        """Cancel a queued job, or stop a running one."""
        with writing(self._engine) as connection:
            jobs.find_visible(connection, principal, number)
            job = jobs.request_stop(connection, number, self._clock.now())
        self._runner.wake()
        self._audit.note(principal, "cancelled", job=job.id, sweep=job.sweep)
        return job

    def set_priority(self, principal: Principal, number: int, priority: int) -> Job:
        """Change the priority of a queued job."""
        with writing(self._engine) as connection:
            jobs.find_visible(connection, principal, number)
            check_priority(principal, priority, self._config.access)
            job = jobs.prioritise(connection, number, priority)
        self._audit.note(principal, "priority changed", job=job.id, sweep=job.sweep, priority=priority)
        return job

    def fire(self, principal: Principal, schedule: Definition) -> Job:
        """Fire a schedule now, in addition to the firings of its cron line."""
        now, most_waiting = self._clock.now(), self._config.queue.waiting_per_user
        if not schedule.is_operators:
            self.plan_schedule(principal, schedule, now)
        with writing(self._engine) as connection:
            job = fire_now(connection, schedule, now, principal.user, most_waiting)
        self._runner.wake()
        self._audit.note(principal, "schedule fired", job=job.id, sweep=job.sweep, schedule=schedule.name)
        return job

    def close(self) -> None:
        """Drop pending stop requests."""
        self._stops.close()

    # --- before a start ---------------------------------------------------------------------------------------

    def check_again(self, job: Job, schedule: Definition | None = None) -> dict[str, str]:
        """Check a job's request again before its start: since its submission the operator may have restricted the
        policy, a config file may have changed, or the user may have lost the access to a sweep that it reads.

        Args:
            job: The job.
            schedule: Schedule that it is a firing of.

        Returns:
            Environment variables with which its process makes those checks that are only decided at its end.

        Raises:
            UserError: The request is not allowed, or cannot run.
        """
        request, begun = job.parsed_request, find_sweep(self._config.tracking_uri, job.sweep)
        who = [self._rights(job.user, job.project)]
        if schedule is not None and schedule.is_saved:
            who.append(self._owner(schedule))
        if not isinstance(request, Run):
            for principal in who:
                self._records.check_exists(principal, request.sweep)
        changes = request.changes if isinstance(request, Extend) else ()
        policy = self._plans.policy if job.due is None else self._plans.policy_for(schedule, job.due)
        approve = partial(policy.check, sweep_exists=partial(self._sweep_exists, who))
        if isinstance(request, Run) and begun is None:
            placed = set(with_output_dir(self._config, ()))  # added by the service itself
            overrides = [each for each in request.overrides if each not in placed]
            policy.check_request(request.conf, overrides)
            composition = compose_sweep(request.conf, request.overrides, ConfSearchPath(self._config_dirs))
            approve(composition)
        elif begun is not None:
            reopened(begun, read_changes(changes), approve=approve)
        elif isinstance(request, Retrain):
            record = self._record(who[0], request.sweep)
            trial = choose(record, request.trial)
            plan_retraining(record, trial, request.overrides, self._config_dirs, request.name, "", approve)
        elif isinstance(request, Reproduce):
            uri = self._config.tracking_uri
            plan_reproduction(uri, request.sweep, request.trial, request.name, "", self._config_dirs, approve)
        if isinstance(request, Retrain) and not request.no_register:
            model = request.register_as or self._record(who[0], request.sweep).conf
            return self._check_model(who[0], model, job.project, adopt=True).as_environment()
        return {}

    # --- inside -------------------------------------------------------------------------------------------------

    def _plan(self, principal: Principal, work: Callable[..., T], *arguments: Any, also: Sequence[Principal] = ()) -> T:
        """Run a method of ``Plans`` in a child process.

        Args:
            principal: Principal of the request.
            work: The method.
            arguments: Its arguments after the first one, which tells what the principal may reach.
            also: Others who must be able to reach the same.
        """
        return self._planner.make(principal.user, work, partial(self._sweep_exists, [principal, *also]), *arguments)

    def _sweep_exists(self, principals: Sequence[Principal], sweep: str) -> bool:
        """Whether a sweep is visible to all principals and in the store, whose errors would name other users'
        sweeps."""
        lists = (self._records.sweeps(principal).content for principal in principals)
        return all(any(line.summary.sweep == sweep for line in lines) for lines in lists)

    def _owner(self, schedule: Definition) -> Principal:
        return self._rights(schedule.schedule.user, schedule.schedule.project)

    def _rights(self, user: str, project: str) -> Principal:
        with self._engine.connect() as connection:
            return tokens.rights_of(connection, user, project, self._clock.now())

    def _check_model(self, principal: Principal, model: str, project: str, *, adopt: bool = False) -> ModelRights:
        """Check that a principal may register a version of a model; return what ``register`` checks again."""
        is_admin = principal.may("admin")
        rights = ModelRights(principal.user, project, principal.projects, is_admin)
        sees = partial(self._records.exists, principal)
        check_model(self._config.tracking_uri, model, rights, sees, adopt=adopt)
        return rights

    def _record(self, principal: Principal, sweep: str) -> SweepRecord:
        """Return the present record of a sweep, not the cached one."""
        self._records.sweep(principal, sweep)  # raises if it is not visible
        return load_sweep(self._config.tracking_uri, sweep)

    def _check_ended(self, record: SweepRecord) -> None:
        with self._engine.connect() as connection:
            open_jobs = [job for job in jobs.of_current_sweep(connection, record.sweep) if not job.has_ended]
        if open_jobs:
            raise UserError(f"{record.sweep} need not be resumed: its job {open_jobs[0].id} is {open_jobs[0].state}")

    def _check_not_reserved(self, name: str) -> None:
        """
        Raises:
            ConfigError: A sweep's folder of this name would be in the way of the service's own files beside it.
        """
        if name == FOLDER or name.startswith(own_files(self._config)):  # others begin like them
            raise ConfigError(f"name={name}: is the name of a file of the service; choose another")

    def _submit(self, principal: Principal, request: Request, sweep: str, project: str | None, priority: int) -> Job:
        check_priority(principal, priority, self._config.access)
        name = None if isinstance(request, Resume | Extend) else request.name
        if name is not None:
            self._check_not_reserved(name)
        # A recorded sweep may have been made on a terminal; the job would get that sweep.
        if name is not None and find_sweep(self._config.tracking_uri, name) is not None:
            raise UserError(f"name={name}: there is a sweep of this name already; choose another")
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
        of = getattr(request, "sweep", None) if name is not None else None
        self._audit.note(principal, "submitted", job=job.id, verb=job.verb, sweep=job.sweep, of=of, project=job.project)
        return job


def own_files(config: Service) -> tuple[str, ...]:
    """Return the names of the files that a service itself has in the folder of the sweeps."""
    folder, database = config.folder, make_url(config.database)
    files = [folder / AUDIT_FILE, Path(config.log.file or folder / LOG_FILE).expanduser()]
    if database.get_backend_name() == "sqlite":  # of a server it is no file
        files.append(Path(database.database or ""))
    return tuple(each.name for each in files if each.name and each.absolute().parent == folder)
