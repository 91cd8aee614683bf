"""Metrics for Prometheus: those that this process counts (``counters``), and those that are read on request, from the
database and from the cached list of sweeps. No metric names a user, a project or a sweep."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from importlib.metadata import version
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, func, select

from sweeps.errors import TrackingUnreachable
from sweeps.service.auth.permissions import LOCAL
from sweeps.service.clock import Clock
from sweeps.service.counters import PROCESS
from sweeps.service.database import tables
from sweeps.service.database.storage_errors import outage
from sweeps.service.queue.heartbeat import Heartbeat
from sweeps.service.queue.jobs import QUEUED, STATES
from sweeps.service.record_cache import RecordCache
from sweeps.tracking.record import STATES as TRIAL_STATES
from sweeps.tracking.record import SweepStatus
from sweeps.tracking.time_account import NAMES

CONTENT_TYPE = CONTENT_TYPE_LATEST


class ServiceCollector(Collector):
    """Reads the metrics of a service."""

    def __init__(self, database: Engine, clock: Clock, heartbeat: Heartbeat, records: RecordCache) -> None:
        self._database, self._clock, self._heartbeat, self._records = database, clock, heartbeat, records

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the current metrics; while the database cannot be written, only those that do not need it. If the
        database cannot be read either, no token can be checked, and there are no metrics."""
        reason = outage.reason
        yield _gauge("sweeps_storage_up", "Whether the service can write to its database.", float(reason is None))
        yield _by("sweeps_build", "The release of Sweeps.", "version", {version("ray-sweeps"): 1})
        if reason is None:
            with self._database.connect() as connection:
                yield from self._of_database(connection)
        yield from self._of_sweeps()

    def _of_database(self, connection: Connection) -> Iterator[GaugeMetricFamily]:
        jobs, deliveries, services = tables.jobs, tables.deliveries, tables.services
        now = self._clock.now()
        counted = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        found = dict.fromkeys(STATES, 0) | {row[0]: row[1] for row in connection.execute(counted)}
        yield _by("sweeps_jobs", "Jobs of the queue, by state.", "state", found)
        first = connection.execute(select(func.min(jobs.c.submitted)).where(jobs.c.state == QUEUED)).scalar()
        age = 0.0 if first is None else max(0.0, now - first)
        yield _gauge("sweeps_queue_oldest_seconds", "Age of the job that waits longest.", age)
        waiting = select(func.count(), func.min(deliveries.c.created)).where(deliveries.c.state == "waiting")
        count, created = connection.execute(waiting).one()
        lag = 0.0 if created is None else max(0.0, now - created)
        yield _gauge("sweeps_notifications_waiting", "Notifications that were not delivered yet.", count)
        yield _gauge("sweeps_notifications_lag_seconds", "Age of the oldest of them.", lag)
        alive = select(func.count()).where(services.c.beat >= self._heartbeat.silent_since)
        yield _gauge("sweeps_services", "Living service processes.", connection.execute(alive).scalar_one())

    def _of_sweeps(self) -> Iterator[GaugeMetricFamily]:
        try:
            seen = self._records.sweeps(LOCAL)
        except TrackingUnreachable:
            yield _gauge("sweeps_tracking_up", "Whether MLflow answers.", 0)
            return
        now, sweeps = self._clock.now(), [line.summary for line in seen.content]
        yield _gauge("sweeps_tracking_up", "Whether MLflow answers.", float(not seen.trouble))
        statuses = Tally(dict.fromkeys(get_args(SweepStatus), 0))
        trials, spent = Tally(dict.fromkeys(TRIAL_STATES, 0)), Tally(dict.fromkeys(NAMES, 0))
        lag = 0.0
        for each in sweeps:
            statuses[each.status] += 1
            trials.update(each.counts)
            if each.status == "running":
                lag = max(lag, now - each.heartbeat)
            for name in NAMES if each.account is not None else ():
                spent[name] += getattr(each.account, name)
        yield _by("sweeps_sweeps", "Recorded sweeps, by status.", "status", statuses)
        yield _by("sweeps_trials", "Trials of the recorded sweeps, by state.", "state", trials)
        yield _by("sweeps_worker_seconds", "Seconds of workers, by what they were spent on.", "on", spent)
        goodput = spent["training"] / spent.total() if spent.total() else 0.0
        yield _gauge("sweeps_goodput_ratio", "Share of workers' time in steps that were kept.", goodput)
        text = "Seconds since the last sign of life in MLflow of the running sweep with the oldest one."
        yield _gauge("sweeps_record_lag_seconds", text, lag)


def exposition(collector: ServiceCollector) -> bytes:
    """Return all metrics in the format of Prometheus."""
    own = CollectorRegistry()
    own.register(collector)
    return generate_latest(PROCESS) + generate_latest(own)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, values: dict[str, float] | dict[str, int] | Tally[str]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
