"""The service or the MLflow store in which a verb finds sweeps, and the options that name it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sweeps.cli.app import server, tracking_uri

if TYPE_CHECKING:
    from sweeps.service.client import Client
    from sweeps.tracking.record import SweepRecord


@dataclass(frozen=True)
class Source:
    """The service at ``--server``, or the MLflow store at ``--tracking-uri``."""

    server: str | None
    tracking_uri: str | None

    @property
    def uri(self) -> str:
        """The MLflow store: the given one, or the default."""
        from sweeps.tracking import default_uri
        from sweeps.tracking.stored_record import local_store

        return local_store(self.tracking_uri or default_uri())

    def client(self, **only_here: object) -> Client | None:
        """Return ``client_of`` this service; other options of the verb may exclude ``--server``, too."""
        return client_of(self.server, tracking_uri=self.tracking_uri, **only_here)

    def read(self, sweep: str) -> SweepRecord:
        """Load a sweep."""
        from sweeps.tracking.reader import load_sweep

        client = self.client()
        return load_sweep(self.uri, sweep) if client is None else client.record(sweep)


def sweep_source(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a ``Source``, which the verb gets as its argument ``source``."""

    @functools.wraps(function)
    def call(*, server: str | None, tracking_uri: str | None, **options: Any) -> None:
        function(source=Source(server, tracking_uri), **options)

    return server(tracking_uri(call))


def client_of(server: str | None, **only_here: object) -> Client | None:
    """Return the client for a service; None without ``--server``.

    Raises:
        UsageError: One of those options was given as well.
    """
    if server is None:
        return None
    if given := [f"--{name.replace('_', '-')}" for name, value in only_here.items() if value]:
        raise click.UsageError(
            f"--server and {' and '.join(given)}: the service at {server} has its own; remove one, or unset "
            "SWEEPS_SERVER"
        )
    from sweeps.service.client import Client

    return Client(server)
