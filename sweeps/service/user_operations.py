"""Operations of the users of the service: each request is checked as on the command line and by the operator's policy,
and training is queued as a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection

from sweeps.compose.hydra_composition import compose_sweep
from sweeps.compose.search_path import ConfSearchPath
from sweeps.compose.service_config import with_output_dir
from sweeps.config.service import Service
from sweeps.driver.reproduce import plan_reproduction
from sweeps.errors import ConfigError, UserError
from sweeps.operations.operations import Reading
from sweeps.plan.export import choose, config_of
from sweeps.plan.extend import ask_driver, read_changes
from sweeps.plan.resume import reopened
from sweeps.plan.retrain import plan_retraining
from sweeps.registry.model_names import check_registration
from sweeps.registry.model_owners import ModelRights, check_owner
from sweeps.registry.unregistered import unregistered
from sweeps.report.plan_summary import PlanPreview
from sweeps.report.report_folder import report_folder
from sweeps.service.audit import AUDIT_FILE, Audit
from sweeps.service.auth import tokens
from sweeps.service.auth.config_policy import ConfigPolicy, SweepExists
from sweeps.service.auth.permissions import Principal, check_priority, project_of
from sweeps.service.database.engine import writing
from sweeps.service.queue import jobs
from sweeps.service.queue.driver_stops import DriverStops
from sweeps.service.queue.job_requests import Extend, Reproduce, Request, Resume, Retrain, Run
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.plan_processes import Planner
from sweeps.service.queue.plans import Planned, Plans
from sweeps.service.queue.runner import JobRunner
from sweeps.service.record_cache import RecordCache
from sweeps.service.schedules.definition import Definition
from sweeps.service.schedules.firing import fire_now
from sweeps.service.schedules.saved import FOLDER
from sweeps.service.service_context import ServiceContext
from sweeps.service.service_log import LOG_FILE
from sweeps.tracking.reader import find_sweep, load_sweep
from sweeps.tracking.record import SweepRecord
from sweeps.tracking.uris import sqlite_path

if TYPE_CHECKING:
    from sweeps.registry.register import RegisteredModel

T = TypeVar("T")


@dataclass(frozen=True)
class UserOperations(Reading):
    """Operations that the REST API and the pages offer to a user of the service. Each raises ``UserError`` for a
    mistake in the request, as the command line does."""

    service: ServiceContext
    runner: JobRunner
    records: RecordCache
    planner: Planner
    audit: Audit
    stops: DriverStops
    principal: Principal

    def acting_for(self, user: str, project: str) -> UserOperations:
        """Return the operations of another user, with that user's current rights; see ``tokens.rights_of``."""
        with self.service.database.connect() as connection:
            return replace(self, principal=tokens.rights_of(connection, user, project, self.service.clock.now()))

    def record(self, sweep: str) -> SweepRecord:
        """Return the record of a sweep that the user may see, at most a few seconds old."""
        return self.records.sweep(self.principal, sweep)

    # --- new sweeps --------------------------------------------------------------------------------------------

    def plan(self, request: Run) -> Planned:
        return self._plan(self._plans.run, request, self.records.past_sweeps(self.principal, request.conf))

    def run(self, request: Run, *, project: str | None = None, priority: int = 0) -> Job:
        """Queue a new sweep."""
        plan = self._plan(self._plans.run, request, ())  # without past sweeps: the expected time is not used
        placed = request.model_copy(update={"overrides": with_output_dir(self.service.config, request.overrides)})
        return self._submit(placed, plan.name, project, priority)

    def plan_retraining(self, request: Retrain) -> Planned:
        record = self._record(request.sweep)
        past = self.records.past_sweeps(self.principal, record.conf)
        plan = self._plan(self._plans.retrain, record, request, past)
        if plan.model is not None:
            self._check_model(plan.model, "")
        return plan

    def retrain(self, request: Retrain, *, project: str | None = None, priority: int = 0) -> Job:
        """Queue the training of one trial with its full budget."""
        plan = self.plan_retraining(request)
        model = {"register_as": plan.model, "no_register": plan.model is None}
        placed = request.model_copy(
            update={"overrides": with_output_dir(self.service.config, request.overrides), **model}
        )
        return self._submit(placed, plan.name, project, priority)

    def plan_reproduction(self, request: Reproduce) -> Planned:
        self.record(request.sweep)
        return self._plan(self._plans.reproduce, request)

    def reproduce(self, request: Reproduce, *, project: str | None = None, priority: int = 0) -> Job:
        """Queue a repetition of a sweep, or of one of its trials."""
        plan = self.plan_reproduction(request)
        return self._submit(request, plan.name, project, priority)

    def plan_schedule(self, schedule: Definition, due: float) -> PlanPreview:
        """Plan the sweep of a saved schedule's firing without starting it. Both the principal and the schedule's user
        need the rights for everything that it reaches."""
        return self._plan(self._plans.schedule, schedule, due, also=[self._owner(schedule)])

    # --- existing sweeps ---------------------------------------------------------------------------------------

    def resume(self, request: Resume, *, priority: int = 0) -> Job:
        """Queue the resumption of a sweep that was interrupted or stopped."""
        record = self._record(request.sweep)
        with self.service.database.connect() as connection:
            _check_ended(connection, record.sweep)  # and again in the transaction that makes the job
        self._plan(self._plans.extend, record, ())
        return self._submit(request, record.sweep, None, priority)

    def extend(self, request: Extend, *, priority: int = 0) -> Job | str:
        """Extend a sweep. If it is running, its driver extends it immediately and the driver's answer is returned;
        otherwise it is queued."""
        record = self._record(request.sweep)
        folder, changes = self._plan(self._plans.extend, record, request.changes)
        answer = ask_driver(record, folder, changes)
        if answer is not None:
            self.records.forget(record.sweep)
            self._note("extended", sweep=record.sweep, changes=" ".join(request.changes))
            return answer
        return self._submit(request, record.sweep, None, priority)

    def stop(self, sweep: str, trial: str | None = None) -> None:
        """Stop a sweep, or one of its trials, without waiting for the end."""
        if trial is None and self.records.exists(self.principal, sweep):
            with writing(self.service.database) as connection:
                own = jobs.open_jobs(connection, sweep)
                for job in own:
                    jobs.request_stop(connection, job.id, self.service.clock.now())
            if own:
                self.runner.wake()
                self._note("stopped", sweep=sweep)
                return
        self.stops.send(self._record(sweep), trial)
        self.records.forget(sweep)
        self._note("stopped", sweep=sweep, trial=trial)

    def register(self, sweep: str, model: str, *, trial: str | None, alias: str, merged: bool) -> RegisteredModel:
        """Register a trial's checkpoint as a model version in MLflow."""
        record = self._record(sweep)
        chosen = choose(record, trial)
        check_registration(config_of(record, chosen), model, alias, merged=merged, is_trained=True)
        with self.service.database.connect() as connection:
            maker = jobs.creator(connection, sweep)
        project = project_of(self.principal, None) if maker is None else maker.project
        rights = self._check_model(model, project, adopt=True)
        from sweeps.registry.register import register  # torch, which takes seconds

        made = register(record, chosen, model, alias, merged=merged, rights=rights)
        self._note("registered", model=model, version=made.version, alias=alias, sweep=sweep)
        return made

    def make_report(self, sweep: str) -> None:
        """Make a sweep's report, even while the sweep runs."""
        record = self.record(sweep)
        from sweeps.report.page.report import make_report  # matplotlib and plotly, which take seconds

        make_report(record, report_folder(record))

    # --- the queue ----------------------------------------------------------------------------------------------

    def job(self, number: int) -> Job:
        """Return a job that the user may see."""
        with self.service.database.connect() as connection:
            return jobs.find_visible(connection, self.principal, number)

    def cancel(self, number: int) -> Job:
        """Cancel a queued job, or stop a running one; one that has ended stays as it is."""
        with writing(self.service.database) as connection:
            if (job := jobs.find_visible(connection, self.principal, number)).has_ended:
                return job
            job = jobs.request_stop(connection, number, self.service.clock.now())
        self.runner.wake()
        self._note("cancelled", job=job.id, sweep=job.sweep)
        return job

    def set_priority(self, number: int, priority: int) -> Job:
        with writing(self.service.database) as connection:
            jobs.find_visible(connection, self.principal, number)
            check_priority(self.principal, priority, self.service.config.access)
            job = jobs.prioritise(connection, number, priority)
        self._note("priority changed", job=job.id, sweep=job.sweep, priority=priority)
        return job

    def fire(self, schedule: Definition) -> Job:
        """Fire a schedule now, in addition to the firings of its cron line."""
        now = self.service.clock.now()
        if not schedule.is_operators:
            self.plan_schedule(schedule, now)
        with writing(self.service.database) as connection:
            jobs.check_waiting(connection, self.principal.user, self.service.config.queue.waiting_per_user)
            job = fire_now(connection, schedule, now, self.principal.user)
        self.runner.wake()
        self._note("schedule fired", job=job.id, sweep=job.sweep, schedule=schedule.name)
        return job

    # --- before a start ---------------------------------------------------------------------------------------

    def check_again(self, job: Job, schedule: Definition | None = None) -> dict[str, str]:
        """Check a job of the user again before its start: since its submission the operator may have restricted the
        policy, a config file may have changed, or the user may have lost access to a sweep that the job reads.

        Returns:
            Environment variables for the checks that the job's process makes only at its end.

        Raises:
            UserError: The request is not allowed, or cannot run.
        """
        request, begun = job.parsed_request, find_sweep(self.service.config.tracking_uri, job.sweep)
        who = [self.principal]
        if schedule is not None and schedule.is_saved:
            who.append(self._owner(schedule))
        if not isinstance(request, Run):
            for principal in who:
                self.records.check_exists(principal, request.sweep)
        policy = self._plans.policy if job.due is None else self._plans.policy_for(schedule, job.due)
        self._approve_again(request, begun, policy, partial(self._sweep_exists, who))
        if isinstance(request, Retrain) and not request.no_register:
            model = request.register_as or self._record(request.sweep).conf
        elif begun is not None and (left := unregistered(begun)) is not None:
            model = left.name
        else:
            return {}
        return self._check_model(model, job.project, adopt=True).as_environment()

    def _approve_again(
        self, request: Request, begun: SweepRecord | None, policy: ConfigPolicy, sweep_exists: SweepExists
    ) -> None:
        """Check the config that a request would run now, either from the beginning or continuing its sweep."""
        approve, config_dirs = partial(policy.check, sweep_exists=sweep_exists), self.service.config_dirs
        if begun is not None:
            reopened(begun, read_changes(request.changes if isinstance(request, Extend) else ()), approve=approve)
        elif isinstance(request, Run):
            placed = set(with_output_dir(self.service.config, ()))  # added by the service itself
            policy.check_request(request.conf, [each for each in request.overrides if each not in placed])
            approve(compose_sweep(request.conf, request.overrides, ConfSearchPath(config_dirs)))
        elif isinstance(request, Retrain):
            record = self._record(request.sweep)
            plan_retraining(record, request.trial, request.overrides, config_dirs, request.name, "", approve)
        elif isinstance(request, Reproduce):
            uri = self.service.config.tracking_uri
            plan_reproduction(uri, request.sweep, request.trial, request.name, "", config_dirs, approve)

    # --- inside -------------------------------------------------------------------------------------------------

    @property
    def _plans(self) -> Plans:
        return Plans(self.service.config, tuple(self.service.config_dirs))

    def _note(self, action: str, **about: str | int | None) -> None:
        self.audit.note(self.principal, action, **about)

    def _plan(self, work: Callable[..., T], *arguments: Any, also: Sequence[Principal] = ()) -> T:
        """Run a method of ``Plans`` in a child process, with its arguments after ``sweep_exists``. Users in ``also``
        must have the same rights."""
        exists = partial(self._sweep_exists, [self.principal, *also])
        return self.planner.make(self.principal.user, work, exists, *arguments)

    def _sweep_exists(self, principals: Sequence[Principal], sweep: str) -> bool:
        """Whether a sweep is visible to all principals and recorded. Unrecorded ones are refused here, since the
        store's error would name other users' sweeps."""
        lists = (self.records.sweeps(principal).content for principal in principals)
        return all(any(line.summary.sweep == sweep for line in lines) for lines in lists)

    def _owner(self, schedule: Definition) -> Principal:
        return self.acting_for(schedule.schedule.user, schedule.schedule.project).principal

    def _check_model(self, model: str, project: str, *, adopt: bool = False) -> ModelRights:
        """Check that the user may register a version of a model; return the rights, which ``register`` checks again."""
        who = self.principal
        rights = ModelRights(who.user, project, who.projects, who.may("admin"))
        sees = partial(self.records.exists, who)
        check_owner(self.service.config.tracking_uri, model, rights, sees, adopt=adopt)
        return rights

    def _record(self, sweep: str) -> SweepRecord:
        """Return the current record of a sweep, not the cached one."""
        self.record(sweep)  # raises if it is not visible
        return load_sweep(self.service.config.tracking_uri, sweep)

    def _submit(self, request: Request, sweep: str, project: str | None, priority: int) -> Job:
        check_priority(self.principal, priority, self.service.config.access)
        name = None if isinstance(request, Resume | Extend) else request.name
        # The sweep's folder would collide with one of the service's own files, their journals or old logs.
        if name is not None and (name == FOLDER or name.startswith(own_files(self.service.config))):
            raise ConfigError(f"name={name}: is the name of a file of the service; choose another")
        # A recorded sweep may have been started from a terminal; the job must not continue it as its own.
        if name is not None and find_sweep(self.service.config.tracking_uri, name) is not None:
            raise UserError(f"name={name}: a sweep of this name already exists; choose another")
        with writing(self.service.database) as connection:
            if project is None and (maker := jobs.creator(connection, sweep)) is not None:
                project = maker.project
            else:
                project = project_of(self.principal, project)
            jobs.check_waiting(connection, self.principal.user, self.service.config.queue.waiting_per_user)
            if isinstance(request, Resume):
                _check_ended(connection, sweep)
            job = jobs.submit(
                connection,
                request,
                sweep,
                user=self.principal.user,
                project=project,
                now=self.service.clock.now(),
                priority=priority,
            )
        self.runner.wake()
        of = getattr(request, "sweep", None) if name is not None else None
        self._note("submitted", job=job.id, verb=job.verb, sweep=job.sweep, of=of, project=job.project)
        return job


def _check_ended(connection: Connection, sweep: str) -> None:
    """Refuse to resume a sweep that has a queued or running job."""
    if own := jobs.open_jobs(connection, sweep):
        raise UserError(f"{sweep} need not be resumed: its job {own[0].id} is {own[0].state}")


def own_files(config: Service) -> tuple[str, ...]:
    """Return the names of the files that a service itself and its MLflow store have in the folder of the sweeps."""
    folder, databases = config.folder, [sqlite_path(uri) for uri in (config.database, config.tracking_uri)]
    files = [folder / AUDIT_FILE, Path(config.log.file or folder / LOG_FILE).expanduser(), *databases]
    return tuple(each.name for each in files if each is not None and each.absolute().parent == folder)
