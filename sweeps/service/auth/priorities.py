"""Limit of the priority that a role may give to a job."""

from __future__ import annotations

from sweeps.config.access import Access
from sweeps.errors import ConfigError
from sweeps.service.auth.principal import Principal


def check_priority(principal: Principal, priority: int, access: Access) -> None:
    """Check a job's priority.

    Raises:
        ConfigError: The priority is higher than the principal's role may give.
    """
    if not principal.may("admin") and priority > access.runner_priority:
        raise ConfigError(
            f"priority={priority}: the highest that a token with the role {principal.role} may give is "
            f"{access.runner_priority} (access.runner_priority); an admin may give a higher one"
        )
