"""Messages on their way: one row a channel, written with what they tell of, tried until they are taken or too old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.exc import IntegrityError

from sweeps.service.database.engine import writing
from sweeps.service.database.tables import deliveries
from sweeps.service.notify.sending import SEND_WITHIN_S, wait_after

MOST_ATTEMPTS = 8
"""Over some two hours."""
TAKEN_FOR_S = 4 * SEND_WITHIN_S
"""A service that died while it sent is taken to have failed after this."""


@dataclass(frozen=True)
class Delivery:
    """A message on its way to a channel."""

    id: int
    channel: str
    message: dict[str, Any]
    attempts: int
    """With the one that is being made."""


def enqueue(connection: Connection, key: str, channels: Sequence[str], message: dict[str, Any], now: float) -> None:
    """Tell channels of something, once: what has been told of under the same key is not told again."""
    for channel in channels:
        values = {"key": key, "channel": channel, "message": message, "state": "waiting", "next": now, "created": now}
        try:
            with connection.begin_nested():
                connection.execute(deliveries.insert().values(**values))
        except IntegrityError:
            pass


def take(engine: Engine, channel: str, now: float) -> Delivery | None:
    """The oldest message that is due for a channel, which no other service takes then."""
    with writing(engine) as connection:
        due = (deliveries.c.channel == channel, deliveries.c.state == "waiting", deliveries.c.next <= now)
        row = connection.execute(select(deliveries).where(*due).order_by(deliveries.c.id).limit(1)).first()
        if row is None:
            return None
        taken = update(deliveries).where(deliveries.c.id == row.id, *due)
        if connection.execute(taken.values(attempts=row.attempts + 1, next=now + TAKEN_FOR_S)).rowcount == 0:
            return None  # another service was first
        return Delivery(row.id, row.channel, row.message, row.attempts + 1)


def sent(engine: Engine, delivery: Delivery) -> None:
    _set(engine, delivery, state="sent", error=None)


def failed(engine: Engine, delivery: Delivery, error: str, now: float) -> bool:
    """It was not taken; whether it is given up. What waits for the same channel waits as long."""
    if delivery.attempts >= MOST_ATTEMPTS:
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
