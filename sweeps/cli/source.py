"""Options that choose whether a verb works on this machine or through a service, and the operations of either."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

from sweeps.cli.app import server, tracking_uri
from sweeps.cli.output import say
from sweeps.operations.local import Local
from sweeps.operations.operations import Operations

if TYPE_CHECKING:
    from sweeps.operations.remote import Remote


def sweep_operations(function: Callable[..., None]) -> Callable[..., None]:
    """Add ``--server`` and ``--tracking-uri``; the verb gets the operations of the chosen place as its argument
    ``operations``."""

    @functools.wraps(function)
    def call(*, server: str | None, tracking_uri: str | None, **options: Any) -> None:
        service = service_at(server, tracking_uri=tracking_uri)
        function(operations=Local(tracking_uri, say) if service is None else service, **options)

    return server(tracking_uri(call))


def service_at(server: str | None, **only_here: object) -> Remote | None:
    """Return the service at an address; None without one.

    Raises:
        UsageError: An option that works only on this machine was given as well.
    """
    if server is None:
        return None
    from sweeps.operations.remote import Remote

    return service_of(Remote(server), **only_here)


def service_of(operations: Operations, **only_here: object) -> Remote | None:
    """Return the service on which the operations run; None on this machine.

    Raises:
        UsageError: The operations are those of a service, and an option that works only on this machine was given.
    """
    if not operations.is_remote:
        return None
    if given := [f"--{name.replace('_', '-')}" for name, value in only_here.items() if value]:
        raise click.UsageError(
            f"--server and {' and '.join(given)}: the service at {operations.address} has its own setting; remove one, "
            "or unset SWEEPS_SERVER"
        )
    return cast("Remote", operations)
