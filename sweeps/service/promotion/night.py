"""One night of a schedule, as it is kept in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, Row, or_, select, update
from sqlalchemy.exc import IntegrityError

from sweeps.config.nights import Nights
from sweeps.config.search import Mode
from sweeps.service.database.engine import writing
from sweeps.service.database.tables import nights, services

if TYPE_CHECKING:
    from sweeps.report.figures.nights import NightsRecord

Verdict = Literal["running", "repeating", "first", "promoted", "kept", "measured", "regression", "failed"]
"""``running``: its sweep is not done; ``repeating``: champion and challenger are trained again; ``first``: it made the
first champion; ``promoted``: it made a new one; ``kept``: the champion stays; ``measured``: there is none, by its
schedule; ``regression``: its best is worse than the nights before; ``failed``: it has no value."""
OPEN: tuple[Verdict, ...] = ("running", "repeating")

SETTINGS: TypeAdapter[Nights] = TypeAdapter(Nights)


@dataclass(frozen=True, kw_only=True)
class Night:
    """A row of ``nights``; its columns say what is what."""

    schedule: str
    due: float
    sweep: str
    settings: Nights
    metric: str
    mode: Mode
    tried: str | None = None
    point: dict[str, Any] | None = None
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
    """Unix time."""
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

    def with_(self, **changes: Any) -> Night:
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """As ``schedule nights --json`` and the API give it."""
        document = self.row()
        del document["settings"], document["point"]
        return document


def begin(engine: Engine, night: Night) -> None:
    """A night starts; one that was begun before by a service that died then is begun anew."""
    with writing(engine) as connection:
        changed = connection.execute(
            update(nights).where(*_is(night), nights.c.verdict == "running").values(**night.row())
        )
        if changed.rowcount == 0 and find(connection, night.sweep) is None:
            try:
                with connection.begin_nested():
                    connection.execute(nights.insert().values(**night.row()))
            except IntegrityError:
                pass  # it has a verdict already


def find(connection: Connection, sweep: str) -> Night | None:
    """The night whose sweep it is, or that had this sweep train its champion and its challenger again."""
    wanted = or_(nights.c.sweep == sweep, nights.c.repeats == sweep)
    row = connection.execute(select(nights).where(wanted)).first()
    return None if row is None else Night.of(row)


def of_schedule(connection: Connection, schedule: str, *, before: float = float("inf")) -> list[Night]:
    """The nights of a schedule that were due before some time, the oldest first."""
    query = select(nights).where(nights.c.schedule == schedule, nights.c.due < before).order_by(nights.c.due)
    return [Night.of(row) for row in connection.execute(query)]


def to_do(connection: Connection) -> list[Night]:
    """The nights that want a verdict or a report, the oldest first."""
    query = select(nights).where(nights.c.reported.is_(None)).order_by(nights.c.due)
    return [Night.of(row) for row in connection.execute(query)]


def hold(engine: Engine, night: Night, service: str, silent_since: float) -> Night | None:
    """Take a night to judge it, unless another service that lives has; as it is now."""
    alive = select(services.c.id).where(services.c.beat >= silent_since)
    free = or_(nights.c.holder.is_(None), nights.c.holder == service, nights.c.holder.not_in(alive))
    with writing(engine) as connection:
        taken = update(nights).where(*_is(night), nights.c.reported.is_(None), free).values(holder=service)
        if connection.execute(taken).rowcount == 0:
            return None
        return Night.of(connection.execute(select(nights).where(*_is(night))).one())


def let_go(engine: Engine, night: Night, service: str) -> None:
    with writing(engine) as connection:
        connection.execute(update(nights).where(*_is(night), nights.c.holder == service).values(holder=None))


def change(connection: Connection, night: Night) -> Night:
    """Write how it stands now."""
    connection.execute(update(nights).where(*_is(night)).values(**night.row()))
    return night


def nights_of(connection: Connection, schedule: str, until: float = float("inf")) -> NightsRecord:
    """The judged nights of a schedule with the newest one's metric, for figures."""
    from sweeps.report.figures.nights import NightsRecord

    judged = [night for night in of_schedule(connection, schedule) if night.verdict not in OPEN and night.due <= until]
    metric = judged[-1].metric if judged else ""
    return NightsRecord(schedule, metric, [night.as_json() for night in judged if night.metric == metric])


def _is(night: Night) -> tuple[Any, Any]:
    return nights.c.schedule == night.schedule, nights.c.due == night.due
