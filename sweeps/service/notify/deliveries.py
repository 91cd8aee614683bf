"""Deliveries of messages: one row for each message and channel, tried until it succeeds or is given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, or_, select, update
from sqlalchemy.exc import IntegrityError

from sweeps.service.database.engine import writing
from sweeps.service.database.tables import deliveries
from sweeps.service.notify.sending import LONGEST_WAIT_S, SEND_WITHIN_S, wait_after
from sweeps.tracking.mlflow_characters import storable

MAX_ATTEMPTS = 8
"""Maximum number of attempts, over about two hours."""
CLAIM_S = 4 * SEND_WITHIN_S
"""Seconds after which a claimed delivery of a service that has died is tried again."""


@dataclass(frozen=True)
class Delivery:
    """A message to a channel."""

    id: int
    channel: str
    message: dict[str, Any]
    attempts: int
    """Number of attempts, including the current one."""


def enqueue(connection: Connection, key: str, channels: Sequence[str], message: dict[str, Any], now: float) -> None:
    """Queue a message for channels; a channel that already has a message with this key is skipped."""
    for channel in channels:
        values = {"key": key, "channel": channel, "message": message, "state": "waiting", "next": now, "created": now}
        try:
            with connection.begin_nested():
                connection.execute(deliveries.insert().values(**values))
        except IntegrityError:
            pass


def claim(engine: Engine, channel: str, now: float) -> Delivery | None:
    """Claim the oldest due message for a channel; None if there is none. A due time further ahead than the longest wait
    was set by a wrong clock, so the message is sent now."""
    with writing(engine) as connection:
        is_due = or_(deliveries.c.next <= now, deliveries.c.next > now + 2 * LONGEST_WAIT_S)
        due = (deliveries.c.channel == channel, deliveries.c.state == "waiting", is_due)
        row = connection.execute(select(deliveries).where(*due).order_by(deliveries.c.id).limit(1)).first()
        if row is None:
            return None
        statement = update(deliveries).where(deliveries.c.id == row.id, *due)
        if connection.execute(statement.values(attempts=row.attempts + 1, next=now + CLAIM_S)).rowcount == 0:
            return None  # another service was faster
        return Delivery(row.id, row.channel, row.message, row.attempts + 1)


def mark_sent(engine: Engine, delivery: Delivery) -> None:
    _set(engine, delivery, state="sent", error=None)


def mark_failed(engine: Engine, delivery: Delivery, error: str, now: float) -> bool:
    """Record a failed attempt, and delay all messages of the channel; return whether the delivery is given up."""
    error = storable(error)
    if delivery.attempts >= MAX_ATTEMPTS:
        _set(engine, delivery, state="given up", error=error)
        return True
    until = now + wait_after(delivery.attempts)
    with writing(engine) as connection:
        waiting = update(deliveries).where(deliveries.c.channel == delivery.channel, deliveries.c.state == "waiting")
        connection.execute(waiting.where(deliveries.c.next < until).values(next=until))
        connection.execute(update(deliveries).where(deliveries.c.id == delivery.id).values(next=until, error=error))
    return False


def _set(engine: Engine, delivery: Delivery, **values: Any) -> None:
    with writing(engine) as connection:
        connection.execute(update(deliveries).where(deliveries.c.id == delivery.id).values(**values))
