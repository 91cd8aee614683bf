"""Nights of a schedule in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, Row, and_, or_, select, update
from sqlalchemy.exc import IntegrityError

from sweeps.config.nights import Nights
from sweeps.config.search import Mode
from sweeps.service.database.engine import writing
from sweeps.service.database.tables import nights, services

if TYPE_CHECKING:
    from sweeps.report.figures.nights import NightsRecord
    from sweeps.service.queue.heartbeat import Heartbeat

Verdict = Literal["running", "repeating", "first", "promoted", "kept", "measured", "regression", "failed"]
"""State of a night. ``running``: its sweep has not ended; ``repeating``: champion and challenger are trained again;
``first``: it made the first champion; ``promoted``: it made a new champion; ``kept``: the champion stays; ``measured``:
the schedule has no champion; ``regression``: its best value is worse than those of earlier nights; ``failed``: it has
no value."""
OPEN: tuple[Verdict, ...] = ("running", "repeating")

SETTINGS: TypeAdapter[Nights] = TypeAdapter(Nights)


@dataclass(frozen=True, kw_only=True)
class Night:
    """A row of ``nights``; see the documentation of its columns."""

    schedule: str
    due: float
    sweep: str
    settings: Nights
    metric: str
    mode: Mode
    tried: str | None = None
    point: Mapping[str, Any] | None = None
    verdict: Verdict = "running"
    reason: str | None = None
    best: float | None = None
    champion: float | None = None
    challenger: str | None = None
    repeats: str | None = None
    champions: Sequence[float] = field(default_factory=tuple)
    challengers: Sequence[float] = field(default_factory=tuple)
    noise: float | None = None
    version: str | None = None
    wall_s: float | None = None
    cost: float | None = None
    decided: float | None = None
    """Unix time of the verdict."""
    reported: float | None = None

    @classmethod
    def of(cls, row: Row[Any]) -> Self:
        values = {name: row._mapping[name] for name in cls.__dataclass_fields__}
        values["settings"] = SETTINGS.validate_python(values["settings"])
        return cls(**values | {name: tuple(values[name] or ()) for name in ("champions", "challengers")})

    def row(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        settings = SETTINGS.dump_python(self.settings, mode="json")
        return values | {"settings": settings, "champions": [*self.champions], "challengers": [*self.challengers]}

    def as_json(self) -> dict[str, Any]:
        """Return the document for ``schedule nights --json`` and the API."""
        document = self.row()
        del document["settings"], document["point"]
        return document


def begin(engine: Engine, night: Night) -> None:
    """Write the row of a night that begins; overwrite a row without a verdict, which a service that died has left."""
    with writing(engine) as connection:
        changed = connection.execute(
            update(nights).where(*_is(night), nights.c.verdict == "running").values(**night.row())
        )
        if changed.rowcount == 0 and find(connection, night.sweep) is None:
            try:
                with connection.begin_nested():
                    connection.execute(nights.insert().values(**night.row()))
            except IntegrityError:
                pass  # it already has a verdict


def find(connection: Connection, sweep: str) -> Night | None:
    """Return the night of a sweep, or of a sweep of repeats; None if there is none."""
    wanted = or_(nights.c.sweep == sweep, nights.c.repeats == sweep)
    row = connection.execute(select(nights).where(wanted)).first()
    return None if row is None else Night.of(row)


def of_schedule(connection: Connection, schedule: str) -> list[Night]:
    """Return the nights of a schedule, oldest first."""
    query = select(nights).where(nights.c.schedule == schedule).order_by(nights.c.due)
    return [Night.of(row) for row in connection.execute(query)]


def earlier_nights(engine: Engine, night: Night) -> list[Night]:
    """Return the earlier nights of a night's schedule that have the same metric, oldest first."""
    with engine.connect() as connection:
        found = of_schedule(connection, night.schedule)
    return [each for each in found if each.due < night.due and (each.metric, each.mode) == (night.metric, night.mode)]


def open_nights(connection: Connection) -> list[Night]:
    """Return the nights without a verdict or a report, oldest first."""
    query = select(nights).where(nights.c.reported.is_(None)).order_by(nights.c.due)
    return [Night.of(row) for row in connection.execute(query)]


def holder_elsewhere(connection: Connection, night: Night, host: str) -> tuple[str, float] | None:
    """Return the service of another host that has claimed a night, and its last heartbeat by its own clock; None also
    if it has signed off."""
    row = connection.execute(
        select(services.c.id, services.c.beat)
        .join(nights, nights.c.holder == services.c.id)
        .where(*_is(night), services.c.host != host, services.c.beat > 0)
    ).first()
    return None if row is None else (row.id, row.beat)


def claim(engine: Engine, night: Night, heartbeat: Heartbeat, lost: str | None) -> Night | None:
    """Claim a night, and return its current state; None if another living service has claimed it.

    Args:
        engine: The service's database.
        night: The night.
        heartbeat: Heartbeat of the service.
        lost: Id of the service of another host that has claimed it and is dead, as its heartbeat no longer changes: the
            clocks of hosts may differ, so that its age tells nothing.
    """
    service = heartbeat.service
    alive = or_(
        and_(services.c.host == heartbeat.host, services.c.beat >= heartbeat.silent_since),
        and_(services.c.host != heartbeat.host, services.c.beat > 0, services.c.id != (lost or "")),
    )
    living = select(services.c.id).where(alive)
    free = or_(nights.c.holder.is_(None), nights.c.holder == service, nights.c.holder.not_in(living))
    with writing(engine) as connection:
        statement = update(nights).where(*_is(night), nights.c.reported.is_(None), free).values(holder=service)
        if connection.execute(statement).rowcount == 0:
            return None
        return Night.of(connection.execute(select(nights).where(*_is(night))).one())


def release(engine: Engine, night: Night, service: str) -> None:
    """Release a claimed night."""
    with writing(engine) as connection:
        connection.execute(update(nights).where(*_is(night), nights.c.holder == service).values(holder=None))


def change(connection: Connection, night: Night) -> Night:
    """Write the current state of a night."""
    connection.execute(update(nights).where(*_is(night)).values(**night.row()))
    return night


def nights_of(connection: Connection, schedule: str, until: float = float("inf")) -> NightsRecord:
    """Return a schedule's nights with a verdict that have the same metric as the newest one, for figures."""
    from sweeps.report.figures.nights import NightsRecord

    judged = [night for night in of_schedule(connection, schedule) if night.verdict not in OPEN and night.due <= until]
    metric = judged[-1].metric if judged else ""
    return NightsRecord(schedule, metric, [night.as_json() for night in judged if night.metric == metric])


def _is(night: Night) -> tuple[Any, Any]:
    return nights.c.schedule == night.schedule, nights.c.due == night.due
