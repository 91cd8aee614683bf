"""The notifier: sends messages about ended sweeps on its own thread. It works from the database, so that failures
do not affect sweeps and no message is lost when a service dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Row, select, update

from sweeps.config.notifications import Channel
from sweeps.errors import TrackingUnreachable, UnknownName
from sweeps.service.database.engine import writing
from sweeps.service.database.tables import jobs
from sweeps.service.nights.night import OPEN, Night, find
from sweeps.service.notify import deliveries
from sweeps.service.notify.message import Message, of_failure, of_sweep
from sweeps.service.notify.sending import send
from sweeps.service.poller import Poller
from sweeps.service.queue.jobs import schedules_of_sweeps
from sweeps.service.service_context import ServiceContext
from sweeps.texts.uri_passwords import redact_uri
from sweeps.tracking.reader import list_sweeps, load_sweep

logger = logging.getLogger(__name__)

POLL_EVERY_S = 5.0
STOP_TIMEOUT_S = 5.0
"""Maximum seconds to wait for a message that is being sent; the next service sends an interrupted one again."""
MAX_WAIT_S = 600.0
"""Maximum seconds to wait for the record of an ended sweep."""


class Notifier(Poller):
    """Queues messages about ended jobs, and sends them."""

    def __init__(
        self,
        service: ServiceContext,
        addresses: Mapping[str, str],
        page_of: Callable[[str], str | None] = lambda _: None,
    ):
        """Make the notifier with the addresses of the channels by name, and of the pages of sweeps that have one."""
        super().__init__("notifier", service.clock, self.step, POLL_EVERY_S, stop_within_s=STOP_TIMEOUT_S)
        self._engine, self._clock, self._uri = service.database, service.clock, service.config.tracking_uri
        self._channels, self._addresses, self._page_of = service.config.notifications, addresses, page_of
        self._mlflow_url = service.config.mlflow_url

    def step(self) -> None:
        """Queue messages about ended jobs, and send those that are due."""
        with self._engine.connect() as connection:
            unannounced = select(jobs).where(jobs.c.ended.is_not(None), jobs.c.told.is_(None)).order_by(jobs.c.ended)
            ended = list(connection.execute(unannounced))
        for job in ended:
            self._announce(job)
        waiting = [channel.name for channel in self._channels]
        while waiting and not self.is_stopping:
            waiting = [name for name in waiting if self._send_next(name)]

    # --- queueing ------------------------------------------------------------------------------------------------

    def _announce(self, job: Row[Any]) -> None:
        message = self._message(job)
        if message == "later":
            return
        now = self._clock.now()
        with writing(self._engine) as connection:
            statement = update(jobs).where(jobs.c.id == job.id, jobs.c.told.is_(None)).values(told=now)
            if connection.execute(statement).rowcount and isinstance(message, Message):
                schedule = schedules_of_sweeps(connection, [job])[job.id]
                names = [each.name for each in self._channels if _wants(each, message, job.project, schedule)]
                key = f"job {job.id}, submitted {job.submitted!r}"  # SQLite gives a removed job's number again
                deliveries.enqueue(connection, key, names, message.as_json(), now)

    def _message(self, job: Row[Any]) -> Message | str | None:
        """Return the message about a job; None for no message, "later" while the result is unknown."""
        is_silent = job.state == "cancelled" and not (job.attempts and job.error)  # unless a time limit has ended it
        if not self._channels or is_silent:
            return None
        with self._engine.connect() as connection:
            night = find(connection, job.sweep)
        if night is not None and night.repeats == job.sweep:
            return None  # part of its night, which has a message of its own
        if night is not None and night.verdict in OPEN:
            is_judged_soon = night.verdict == "repeating" or self._clock.now() - job.ended < MAX_WAIT_S
            if job.state != "failed" or is_judged_soon:  # a failure does not wait for an earlier night's repeats
                return "later"
        return self._of_record(job, night)

    def _of_record(self, job: Row[Any], night: Night | None) -> Message | str:
        page = self._page_of(job.sweep)
        since = job.ended if night is None else max(job.ended, night.decided or 0.0)
        error = job.error if job.state == "failed" else None
        limit = job.error if job.state == "stopped" else None
        try:
            record = load_sweep(self._uri, job.sweep)
            earlier = [] if night is not None else list_sweeps(self._uri)
            return of_sweep(record, earlier, night=night, error=error, limit=limit, page=page, mlflow=self._mlflow_url)
        except UnknownName:
            return of_failure(job.sweep, job.error, page)
        except Exception as error:
            # Any error, such as a tag that somebody has edited: one record must not hold up the other messages.
            if self._clock.now() - since < MAX_WAIT_S:
                return "later"
            if isinstance(error, TrackingUnreachable):
                return of_failure(job.sweep, job.error or f"MLflow at {redact_uri(self._uri)} does not answer.", page)
            logger.exception("the record of sweep %s cannot be read; its message has no results", job.sweep)
            return of_failure(job.sweep, job.error or "Its record cannot be read.", page)

    # --- sending ------------------------------------------------------------------------------------------------

    def _send_next(self, channel: str) -> bool:
        """Send the next due message of a channel; return whether there may be another one."""
        delivery = deliveries.claim(self._engine, channel, self._clock.now())
        if delivery is None:
            return False
        error = send(self._addresses[channel], delivery.message)
        if error is None:
            deliveries.mark_sent(self._engine, delivery)
            return True
        given_up = deliveries.mark_failed(self._engine, delivery, error, self._clock.now())
        title, attempts = delivery.message["title"], delivery.attempts
        what = "is given up" if given_up else "is tried again"
        logger.warning("%r for the channel %s %s after %d attempts: %s", title, channel, what, attempts, error)
        return given_up


def _wants(channel: Channel, message: Message, project: str, schedule: str | None) -> bool:
    return (
        message.event in channel.events
        and (not channel.projects or project in channel.projects)
        and (not channel.schedules or schedule in channel.schedules)
    )
