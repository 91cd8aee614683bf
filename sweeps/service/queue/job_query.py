"""Query for the newest jobs among hundreds of thousands: one subquery for each combination of filters, each answered by
an index, reading no more rows than it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, or_, select, true, union_all

from sweeps.service.auth.permissions import Principal
from sweeps.service.database import tables

_jobs = tables.jobs


def seen_by(principal: Principal | None) -> ColumnElement[bool]:
    """Return the SQL condition for the jobs that a principal may see, as in ``visible``; no condition for None."""
    if principal is None or principal.role == "admin":
        return true()
    return or_(_jobs.c.user == principal.user, _jobs.c.project.in_(principal.projects))


def newest(
    states: Sequence[str],
    *,
    filters: dict[str, str],
    principal: Principal | None,
    before: int | None,
    most: int,
) -> Select[Any]:
    """Return a query for the ids of the newest jobs, newest first: those visible to the principal, with these values of
    ``user``, ``project`` and ``schedule``, and with ids below ``before``."""
    rest = [_jobs.c[name] == value for name, value in filters.items()]
    if before is not None:
        rest.append(_jobs.c.id < before)
    kinds: list[list[ColumnElement[bool]]] = [[_jobs.c.state == state, *rest] for state in states]
    if principal is not None and principal.role != "admin":
        whose = [_jobs.c.user == principal.user, *(_jobs.c.project == project for project in principal.projects)]
        kinds = [[one, *kind] for kind in kinds for one in whose]
    parts = [
        select(select(_jobs.c.id).where(*kind).order_by(_jobs.c.id.desc()).limit(most).subquery().c.id)
        for kind in kinds
    ]
    found = union_all(*parts).subquery()
    return select(found.c.id).distinct().order_by(found.c.id.desc()).limit(most)
