"""Who asks, and which sweeps there are for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sweeps.errors import UnknownName

Role = Literal["read", "run", "admin"]
ROLES: tuple[Role, ...] = ("read", "run", "admin")
"""Each may do all that those before it may."""


@dataclass(frozen=True)
class Caller:
    """Whoever makes a request."""

    user: str
    role: Role
    projects: tuple[str, ...] = ()
    """Whose sweeps they reach besides their own."""

    def may(self, role: Role) -> bool:
        """Whether theirs is this role, or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Caller("local", "admin")
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


def visible(caller: Caller, job: Owned | None) -> bool:
    """Whether a sweep exists for a caller: their own do, and those of their projects. What is not visible is answered
    like what does not exist.

    Args:
        caller: Who asks.
        job: What made the sweep; None for one that was not made through the service, which belongs to nobody.
    """
    if caller.role == "admin":
        return True
    return job is not None and (job.user == caller.user or job.project in caller.projects)


def project_of(caller: Caller, asked: str | None) -> str:
    """The project that a caller's new sweep belongs to: the one asked for, else their first, else their own name.

    Raises:
        UnknownName: It is not one of theirs.
    """
    if asked is None:
        return caller.projects[0] if caller.projects else caller.user
    if caller.role == "admin" or asked == caller.user or asked in caller.projects:
        return asked
    known = ", ".join([*caller.projects, caller.user])
    raise UnknownName(f"project={asked}: is not one of yours; there is {known}")
