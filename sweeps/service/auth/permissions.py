"""Principals: authenticated users with their roles, and their rights to sweeps, projects and priorities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from sweeps.config.access import Access
from sweeps.errors import ConfigError, UnknownName

Role = Literal["metrics", "read", "run", "admin"]
ROLES: tuple[Role, ...] = ("metrics", "read", "run", "admin")
"""Roles in ascending order; each includes the rights of the previous ones, except that only ``admin`` includes
``metrics``, which reads numbers about all users."""


@dataclass(frozen=True)
class Principal:
    """User on whose behalf a request is made, with the role of the token."""

    user: str
    role: Role
    projects: tuple[str, ...] = ()
    """Projects whose sweeps the user may access in addition to their own."""
    token: int | None = field(default=None, compare=False)
    """Number of the token, for the audit log."""
    address: str = field(default="", compare=False)
    """Address from which the request came, for the audit log."""

    def may(self, role: Role) -> bool:
        """Whether the principal has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Principal("local", "admin")
"""Principal of every request to a service that only this machine can reach and that has no tokens, and of the service
itself when it reads all sweeps."""


class Owned(Protocol):
    """A job, or anything else that belongs to a user and a project."""

    @property
    def user(self) -> str: ...

    @property
    def project(self) -> str: ...


def visible(principal: Principal, job: Owned | None) -> bool:
    """Whether a principal may see the sweep of a job: users see their own sweeps and those of their projects. Without a
    job (the sweep was not made through the service), only admins may see it. An invisible sweep is answered like one
    that does not exist."""
    if principal.role == "admin":
        return True
    return job is not None and (job.user == principal.user or job.project in principal.projects)


def project_of(principal: Principal, requested: str | None) -> str:
    """Return the project of a new sweep: the requested one, else the principal's first, else the user's name. Raise
    ``UnknownName`` if the requested one is not the principal's."""
    if requested is None:
        return principal.projects[0] if principal.projects else principal.user
    if principal.role == "admin" or requested == principal.user or requested in principal.projects:
        return requested
    known = ", ".join([*principal.projects, principal.user])
    raise UnknownName(f"project={requested}: is not one of yours; use one of {known}")


def check_priority(principal: Principal, priority: int, access: Access) -> None:
    """Raise ``ConfigError`` if a job's priority is higher than the principal's role may give."""
    if not principal.may("admin") and priority > access.runner_priority:
        raise ConfigError(
            f"priority={priority}: the highest that a token with the role {principal.role} may give is "
            f"{access.runner_priority} (access.runner_priority); an admin may give a higher one"
        )
