"""Who asks, and which sweeps there are for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sweeps.errors import UnknownName

Role = Literal["read", "run", "admin"]
ROLES: tuple[Role, ...] = ("read", "run", "admin")
"""Each may do all that those before it may."""


@dataclass(frozen=True)
class Principal:
    """Whoever makes a request."""

    user: str
    role: Role
    projects: tuple[str, ...] = ()
    """Whose sweeps they reach besides their own."""

    def may(self, role: Role) -> bool:
        """Whether theirs is this role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Principal("local", "admin")
"""Everybody, on a service that listens on this machine alone and has no tokens."""


class Owned(Protocol):
    """A job, or whatever else belongs to a user and a project."""

    @property
    def user(self) -> str:
        """Who submitted it."""
        ...

    @property
    def project(self) -> str:
        """For whom."""
        ...


def visible(principal: Principal, job: Owned | None) -> bool:
    """Whether a principal may see a sweep: their own and those of their projects. A sweep that is not visible is
    answered like one that does not exist.

    Args:
        principal: Who asks.
        job: What made the sweep; None for one that was not made through the service, which belongs to nobody.
    """
    if principal.role == "admin":
        return True
    return job is not None and (job.user == principal.user or job.project in principal.projects)


def project_of(principal: Principal, asked: str | None) -> str:
    """The project that a principal's new sweep belongs to: the one asked for, else their first, else their own name.

    Raises:
        UnknownName: It is not one of theirs.
    """
    if asked is None:
        return principal.projects[0] if principal.projects else principal.user
    if principal.role == "admin" or asked == principal.user or asked in principal.projects:
        return asked
    known = ", ".join([*principal.projects, principal.user])
    raise UnknownName(f"project={asked}: is not one of yours; there is {known}")
