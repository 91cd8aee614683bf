"""Tells channels how sweeps have ended: in a thread of its own, from what the database says, so that nothing that goes
wrong here or there touches a sweep, and nothing is forgotten when a service dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, Row, select, update

from sweeps.config.notifications import Channel
from sweeps.errors import TrackingUnreachable, UnknownName
from sweeps.redact import redact_uri
from sweeps.service.clock import Clock
from sweeps.service.database.engine import writing
from sweeps.service.database.tables import jobs
from sweeps.service.notify import deliveries
from sweeps.service.notify.message import Message, of_failure, of_sweep
from sweeps.service.notify.sending import send
from sweeps.service.poller import Poller
from sweeps.service.promotion.night import OPEN, Night, find
from sweeps.tracking.reader import list_sweeps, load_sweep

logger = logging.getLogger(__name__)

LOOKS_EVERY_S = 5.0
STOPS_WITHIN_S = 5.0
PATIENCE_S = 600.0
"""How long the record of a sweep that has ended is waited for, and the verdict on a night."""
SILENT = ("cancelled",)
"""Jobs that ended so never began, because somebody wanted it so."""


class Notifier:
    """A thread that writes messages and sends them."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        tracking_uri: str,
        channels: Sequence[Channel],
        addresses: Mapping[str, str],
        page_of: Callable[[str], str | None] = lambda _: None,
    ):
        """
        Args:
            engine: The service's database.
            clock: What time it is.
            tracking_uri: Where sweeps are recorded.
            channels: Whom to tell of what.
            addresses: Of each channel, by its name.
            page_of: Gives the address of a sweep's page, if it has one.
        """
        self._engine, self._clock, self._uri = engine, clock, tracking_uri
        self._channels, self._addresses, self._page_of = channels, addresses, page_of
        self._poller = Poller("notifier", clock, self.step, LOOKS_EVERY_S)

    def start(self) -> None:
        self._poller.start()

    def stop(self) -> None:
        """Soon: a message that is being sent then is sent again by whoever serves next."""
        self._poller.stop(STOPS_WITHIN_S)

    def wake(self, *_: object) -> None:
        """A sweep has ended, or a night has its verdict."""
        self._poller.wake()

    def step(self) -> None:
        """Write what there is to tell, and send what is due."""
        with self._engine.connect() as connection:
            untold = select(jobs).where(jobs.c.ended.is_not(None), jobs.c.told.is_(None)).order_by(jobs.c.ended)
            ended = list(connection.execute(untold))
        for job in ended:
            self._tell(job)
        waiting = [channel.name for channel in self._channels]
        while waiting and not self._poller.is_stopping:
            waiting = [name for name in waiting if self._send_next(name)]

    # --- writing ------------------------------------------------------------------------------------------------

    def _tell(self, job: Row[Any]) -> None:
        message = self._message(job)
        if message == "later":
            return
        now = self._clock.now()
        with writing(self._engine) as connection:
            told = update(jobs).where(jobs.c.id == job.id, jobs.c.told.is_(None)).values(told=now)
            if connection.execute(told).rowcount and isinstance(message, Message):
                names = [channel.name for channel in self._channels if _wants(channel, message, job)]
                deliveries.enqueue(connection, f"job {job.id}", names, message.as_json(), now)

    def _message(self, job: Row[Any]) -> Message | str | None:
        """What to tell of a job; None for nothing, "later" as long as it is not known."""
        if job.state in SILENT or not self._channels:
            return None
        with self._engine.connect() as connection:
            night = find(connection, job.sweep)
        if night is not None and night.repeats == job.sweep:
            return None  # a part of its night, which is told of
        if night is not None and night.verdict in OPEN:
            return "later" if self._may_wait(job, night) else self._of_record(job, None)
        return self._of_record(job, night)

    def _may_wait(self, job: Row[Any], night: Night) -> bool:
        """The verdict is there when its repeats are done, however long they take."""
        return night.verdict == "repeating" or self._clock.now() - job.ended < PATIENCE_S

    def _of_record(self, job: Row[Any], night: Night | None) -> Message | str:
        page = self._page_of(job.sweep)
        try:
            record = load_sweep(self._uri, job.sweep)
            earlier = [] if night is not None else list_sweeps(self._uri)
        except UnknownName:
            return of_failure(job.sweep, job.error, page)
        except TrackingUnreachable:
            if self._clock.now() - job.ended < PATIENCE_S:
                return "later"
            return of_failure(job.sweep, job.error or f"MLflow at {redact_uri(self._uri)} does not answer.", page)
        error = job.error if job.state == "failed" else None
        return of_sweep(record, earlier, night=night, error=error, page=page)

    # --- sending ------------------------------------------------------------------------------------------------

    def _send_next(self, channel: str) -> bool:
        """Send the next message that is due for a channel; whether there may be another."""
        delivery = deliveries.take(self._engine, channel, self._clock.now())
        if delivery is None:
            return False
        error = send(self._addresses[channel], delivery.message)
        if error is None:
            deliveries.sent(self._engine, delivery)
            return True
        given_up = deliveries.failed(self._engine, delivery, error, self._clock.now())
        title, attempts = delivery.message["title"], delivery.attempts
        what = "is given up" if given_up else "is tried again"
        logger.warning("%r for the channel %s %s after %d attempts: %s", title, channel, what, attempts, error)
        return given_up


def _wants(channel: Channel, message: Message, job: Row[Any]) -> bool:
    return (
        message.event in channel.events
        and (not channel.projects or job.project in channel.projects)
        and (not channel.schedules or job.schedule in channel.schedules)
    )
