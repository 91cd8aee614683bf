"""The parts of a service process: queue, schedules, notifications and so on, each with ``start`` and ``stop``. The
process may die at any moment: its state is in the database, and its sweeps continue."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

from sweeps.config.service import Service
from sweeps.errors import ConfigError
from sweeps.service.audit import Audit
from sweeps.service.auth.auth import Authenticator
from sweeps.service.auth.permissions import LOCAL, Principal
from sweeps.service.database.engine import open_database
from sweeps.service.database.timeouts import ENDING_S, SERVICE_S, process_waits_at_most
from sweeps.service.nights import night as nights
from sweeps.service.nights.preparation import prepare
from sweeps.service.nights.promotion_worker import PromotionWorker
from sweeps.service.notify.address import addresses
from sweeps.service.notify.notifier import Notifier
from sweeps.service.poller import Poller
from sweeps.service.queue.driver_stops import DriverStops
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.housekeeping import Housekeeping
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.jobs import Job
from sweeps.service.queue.plan_processes import Planner
from sweeps.service.queue.runner import JobRunner
from sweeps.service.record_cache import RecordCache
from sweeps.service.schedules.editor import ScheduleEditor
from sweeps.service.schedules.scheduler import Scheduler
from sweeps.service.service_context import ServiceContext
from sweeps.service.user_operations import UserOperations


class AppContext(ServiceContext):
    """All parts of this service process; the web application finds it as ``app.state.service``."""

    def __init__(self, config: Service, config_dirs: Sequence[Path] = ()) -> None:
        """Make the parts of a service; ``config_dirs`` take precedence over those in its config.

        Raises:
            ConfigError: The database cannot be opened, a schedule or a channel's address is invalid, or the service
                would be reachable from other machines without an admin token.
        """
        folders = [*config_dirs, *(Path(each) for each in config.config_dirs)]
        super().__init__(config, open_database(config.database), config_dirs=folders)
        self.authenticator = self._authenticator()
        self.heartbeat = Heartbeat(self.database, self.clock, config.queue.dead_after_s)
        self.runner = JobRunner(
            self,
            self.heartbeat,
            prepare=self._night_overrides,
            check=self._check_again,
            when_ended=self._job_ended,
        )
        self.records = RecordCache(self.database, config.tracking_uri)
        self.planner = Planner(config.access.plans_at_once, config.access.plan_within_s)
        self.audit = Audit(config.folder, self.clock)
        self.stops = DriverStops()
        self.scheduler = Scheduler(self, number=self.heartbeat.service, queued=self.runner.wake)
        self.saved_schedules = self.scheduler.saved
        self.schedule_editor = ScheduleEditor(self, self.scheduler, self.operations, self.audit)
        self.notifier = Notifier(self, addresses(config.notifications), self.page_of)
        self.promotion_worker = PromotionWorker(self, self.heartbeat, self.notifier.wake, self._window_end)
        self.housekeeping = Housekeeping(self)
        self.parts: list[Planner | Poller] = [
            *(self.planner, self.runner, self.scheduler, self.promotion_worker, self.notifier, self.housekeeping)
        ]
        """Parts in the order in which they are started; they stop in reverse order."""

    def _authenticator(self) -> Authenticator:
        is_local = is_loopback(self.config.host)
        authenticator = Authenticator(self.database, self.config.access, self.clock, loopback=is_local)
        if not is_local and not authenticator.has_admin():
            raise ConfigError(
                f"host={self.config.host}: is reachable from other machines, where the service requires tokens, and no "
                "admin token exists; make it with `python -m sweeps token create --user YOU --role admin`, or "
                "serve on host=127.0.0.1"
            )
        return authenticator

    def operations(self, principal: Principal) -> UserOperations:
        shared = (self.runner, self.records, self.planner, self.audit, self.stops)
        return UserOperations(self, *shared, principal)

    def _night_overrides(self, job: Job) -> list[str]:
        """Return the overrides that a schedule's earlier nights add to its sweep."""
        definition = self.scheduler.of_job(job)
        if definition is None or definition.schedule.nights is None:
            return []
        return prepare(self.database, job, definition.schedule.nights, self.config.tracking_uri, self.config_dirs)

    def _job_ended(self, _job: Job) -> None:
        self.promotion_worker.wake()
        self.notifier.wake()

    def _window_end(self, job: Job) -> float | None:
        """Return the end of the window of a schedule's job, or the job's own deadline if the schedule was removed; None
        if there is none."""
        definition = self.scheduler.of_job(job)
        return job.end_by if definition is None or job.due is None else definition.window(job.due)[0]

    def _check_again(self, job: Job) -> dict[str, str]:
        """Check a user's request again, and return environment variables for its process. Schedules in the folders of
        configs, and all nights, belong to the operator, whose jobs are not checked."""
        if job.schedule is not None and self._is_operators(job):
            return {}
        with self.database.connect() as connection:
            night = nights.find(connection, job.sweep) if isinstance(job.parsed_request, Run) else None
        if night is not None and night.repeats == job.sweep and night.reported is None:
            return {}
        owner = self.operations(LOCAL).acting_for(job.user, job.project)
        return owner.check_again(job, self.scheduler.of_job(job))

    def _is_operators(self, job: Job) -> bool:
        """Whether a schedule's job comes from the operator's own file instead of a saved schedule."""
        definition = self.scheduler.of_job(job)
        if definition is None or not definition.is_saved:
            return definition is not None
        own = definition.replaces
        if own is None or job.due is None or not isinstance(request := job.parsed_request, Run):
            return False
        return (request.conf, request.overrides) == (own.schedule.conf, own.overrides(job.due))

    def page_of(self, sweep: str) -> str | None:
        """Return the address of a sweep's page; None if ``public_url`` is needed for it and not set."""
        host, port, base = self.config.host, self.config.port, self.config.public_url
        if base is None and (port == 0 or host in ("0.0.0.0", "::")):  # noqa: S104 - compared, not bound
            return None
        return f"{(base or f'http://{host_in_url(host)}:{port}').rstrip('/')}/sweeps/{sweep}"

    def start(self) -> None:
        process_waits_at_most(SERVICE_S)
        for part in self.parts:
            part.start()

    def stop(self) -> None:
        """Stop all background parts; running sweeps continue."""
        process_waits_at_most(ENDING_S)
        for part in self.parts:
            if isinstance(part, Poller):
                part.request_stop()  # so that their current calls end concurrently
        for part in reversed(self.parts):
            part.stop()
        self.stops.close()
        self.database.dispose()


def host_in_url(host: str) -> str:
    """Return a host as it is written in a URL: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether all addresses of a host belong to this machine."""
    try:
        addresses_of_host = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False  # `listen` reports it
    return all(ipaddress.ip_address(str(each).partition("%")[0]).is_loopback for each in addresses_of_host)
