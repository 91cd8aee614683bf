"""What is added to a night's sweep just before it starts: what it learns from, and who is tried again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Engine

from sweeps.compose.overrides import written_override
from sweeps.config.nights import Nights
from sweeps.errors import ConfigError, UserError
from sweeps.plan import Plan, make_plan
from sweeps.registry.names import check_registration
from sweeps.search.earlier import Point, load_earlier
from sweeps.service.nights.champion import Version, champion_of, point_tonight
from sweeps.service.nights.night import Night, begin, of_schedule

logger = logging.getLogger(__name__)


def check_nights(settings: Nights, plan: Plan) -> None:
    """
    Raises:
        ConfigError: Nights of such a sweep cannot have what is asked.
    """
    champion = settings.champion
    if champion is None:
        return
    try:
        check_registration(plan.config, champion.model, champion.alias, merged=False)
    except UserError as error:
        raise ConfigError(f"nights.champion.model={champion.model}: {error}") from None
    if len(plan.config.search.metrics) > 1:
        raise ConfigError(
            f"nights.champion: of several objectives ({', '.join(plan.config.search.metrics)}) none alone says who is "
            "better; name one search.metric, or leave the champion out"
        )


def prepare(
    engine: Engine,
    schedule: str,
    due: float,
    sweep: str,
    settings: Nights,
    tokens: Sequence[str],
    config_dirs: Sequence[Path],
) -> list[str]:
    """Write down that a night begins; returns the overrides to add to its sweep. Asked again, it gives the same, unless
    the champion has changed meanwhile.

    Args:
        engine: The service's database.
        schedule: Its name.
        due: The firing.
        sweep: Name of tonight's sweep.
        settings: The schedule's ``nights``.
        tokens: ``conf=NAME`` and the overrides that the schedule has.
        config_dirs: Users' folders of configs.

    Raises:
        UserError: The sweep cannot be composed, or MLflow does not answer.
    """
    plan = make_plan(tokens, config_dirs, None, f"schedule {schedule}")
    search = plan.config.search
    with engine.connect() as connection:
        before = of_schedule(connection, schedule, before=due)
    night = Night(
        schedule=schedule, due=due, sweep=sweep, settings=settings, metric=search.metrics[0], mode=search.modes[0]
    )
    overrides = []
    earlier = [each for each in _to_learn_from(plan, before, settings.warm_start) if each not in search.warm_start]
    if earlier:
        overrides.append(written_override("search.warm_start", [*search.warm_start, *earlier]))
    champion = None if settings.champion is None else champion_of(plan.config.tracking.uri, settings.champion)
    if champion is not None:
        point, why_not = _point(plan, champion)
        night = night.with_(tried=champion.version, version=champion.version, point=point, reason=why_not)
        if point is not None and point not in search.points:
            overrides.append(written_override("search.points", [point, *search.points]))
    begin(engine, night)
    return overrides


def _to_learn_from(plan: Plan, before: Sequence[Night], count: int) -> list[str]:
    """The newest nights that have something to tell of tonight's space, the newest first."""
    search, found = plan.config.search, list[str]()
    for night in reversed(before):
        if len(found) == count:
            break
        try:
            load_earlier(
                plan.config.tracking.uri,
                [night.sweep],
                plan.space,
                plan.points.lookup,
                search.metrics[0],
                search.modes[0],
            )
        except UserError as error:
            logger.info("the night %s is not learned from: %s", night.sweep, error)
        else:
            found.append(night.sweep)
    return found


def _point(plan: Plan, champion: Version) -> tuple[Point | None, str | None]:
    try:
        return point_tonight(plan, champion), None
    except UserError as error:
        logger.warning("%s: it is not tried tonight, and stays", error)
        return None, str(error)
