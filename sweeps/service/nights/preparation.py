"""Preparation of a night's sweep just before its start: warm start and the champion's point."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Engine

from sweeps.compose.overrides import written_override
from sweeps.config.nights import Nights
from sweeps.errors import ArtifactsUnreachable, TrackingUnreachable, UserError
from sweeps.plan.plan import Plan, make_plan
from sweeps.service.nights.champion_version import Version, champion_of, champion_point
from sweeps.service.nights.night import Night, begin, earlier_nights
from sweeps.service.queue.job_requests import Run
from sweeps.service.queue.jobs import Job
from sweeps.space.space import Point
from sweeps.tracking.reader import find_sweep
from sweeps.warm_start.earlier_trials import load_earlier

logger = logging.getLogger(__name__)

MAX_CANDIDATES = 120
"""Maximum number of earlier nights to consider for a warm start."""


def plan_of(job: Job, config_dirs: Sequence[Path]) -> Plan:
    """Return the plan of a job that makes a night's sweep."""
    request = job.parsed_request
    assert isinstance(request, Run)
    return make_plan([f"conf={request.conf}", *request.overrides], config_dirs, None, f"schedule {job.schedule}")


def prepare(engine: Engine, job: Job, settings: Nights, tracking_uri: str, config_dirs: Sequence[Path]) -> list[str]:
    """Record that a night begins, and return the overrides to add to its sweep. A repeated call returns the same
    overrides, unless the champion has changed.

    Raises:
        UserError: The sweep cannot be composed, or MLflow does not answer.
    """
    assert job.schedule is not None
    assert job.due is not None
    plan = plan_of(job, config_dirs)
    search = plan.config.search
    night = Night(
        schedule=job.schedule,
        due=job.due,
        sweep=job.sweep,
        settings=settings,
        metric=search.metrics[0],
        mode=search.modes[0],
    )
    overrides = list[str]()
    if "seed" not in plan.space and plan.config.seed == 0:  # the default, with which every night tries the same points
        overrides.append(f"seed={random.Random(f'seed of {job.schedule} {job.due}').randrange(1, 2**31)}")
    candidates = earlier_nights(engine, night)[-MAX_CANDIDATES:]
    earlier = _warm_start(plan, tracking_uri, candidates, settings.warm_start)
    if earlier:
        own = plan.config.as_document()["search"]["warm_start"]
        overrides.append(written_override("search.warm_start", [*own, *(name for name in earlier if name not in own)]))
    champion = None if settings.champion is None else champion_of(tracking_uri, settings.champion)
    if champion is not None:
        point, reason = _point(plan, tracking_uri, champion)
        night = replace(night, tried=champion.version, version=champion.version, point=point, reason=reason)
        if point is not None and point not in search.points:
            overrides.append(written_override("search.points", [point, *search.points]))
    if _default_was_tried(plan, tracking_uri, candidates):
        overrides.append("search.default_first=false")
    begin(engine, night)
    return overrides


def _default_was_tried(plan: Plan, uri: str, before: Sequence[Night]) -> bool:
    """Whether the sweep would begin with the config's own values even though an earlier night has trained them."""
    default = plan.points.default()[0] if plan.config.search.default_first else None
    if default is None:
        return False
    likely_first = [*before[:1], *reversed(before[1:])]  # the first night, or one since the config was changed
    records = (find_sweep(uri, night.sweep) for night in likely_first)
    return any(
        trial.params == default and trial.value is not None
        for record in records
        if record is not None
        for trial in record.trials
    )


def _warm_start(plan: Plan, uri: str, before: Sequence[Night], count: int) -> list[str]:
    """Return the sweeps of the newest nights that have trials in tonight's space, newest first."""
    found = list[str]()
    for night in reversed(before):
        if len(found) == count:
            break
        try:
            load_earlier(uri, [night.sweep], plan.space, plan.points.lookup, night.metric, night.mode)
        except (TrackingUnreachable, ArtifactsUnreachable):
            raise  # the job waits for MLflow
        except UserError as error:
            logger.info("the night %s is not used for the warm start: %s", night.sweep, error)
        else:
            found.append(night.sweep)
    return found


def _point(plan: Plan, uri: str, champion: Version) -> tuple[Point | None, str | None]:
    try:
        return champion_point(plan, uri, champion), None
    except (TrackingUnreachable, ArtifactsUnreachable):
        raise
    except UserError as error:
        logger.warning("the champion is not evaluated tonight, and stays champion: %s", error)
        return None, str(error)
