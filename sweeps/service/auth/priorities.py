"""How far to the front of the queue somebody may put a sweep."""

from __future__ import annotations

from sweeps.config.access import Access
from sweeps.errors import ConfigError
from sweeps.service.auth.principal import Caller


def check_priority(caller: Caller, priority: int, access: Access) -> None:
    """
    Raises:
        ConfigError: It is higher than the caller's role may give.
    """
    if not caller.may("admin") and priority > access.runner_priority:
        raise ConfigError(
            f"priority={priority}: the highest that a token with the role {caller.role} may give is "
            f"{access.runner_priority} (access.runner_priority); an admin may give a higher one"
        )
