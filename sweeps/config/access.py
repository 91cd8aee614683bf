"""Schema of ``access``: limits of requests, and what submitted configs may reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt


@dataclass(config=STRICT, kw_only=True)
class Access:
    """Limits of requests, and what submitted configs may reach. Everything that is not allowed here is refused."""

    allowed_targets: list[str] = Field(default_factory=list)
    """Import paths that a ``_target_`` may have: ``my_project.training.train``, or ``my_project.training.*`` for all
    functions and classes that the module defines. They run with the rights of the service."""
    allowed_commands: list[str] = Field(default_factory=list)
    """Programs that a config may run, by file name: ``axolotl`` for the complete ``task`` in
    ``conf/task/axolotl.yaml``. A request may change only the values of ``task.arguments``."""
    allowed_folders: list[str] = Field(default_factory=list)
    """Folders whose files a config may use as data, model or earlier trials; links must not lead out of them."""
    allowed_uris: list[str] = Field(default_factory=list)
    """Addresses that a config may use as data, model, earlier trials or tracking server: a prefix that ends with a
    slash (``s3://our-data/``), or a complete address."""
    allowed_hub: list[str] = Field(default_factory=lambda: ["*"])
    """Names on the Hugging Face hub that a config may load; ``*`` matches anything: ``our-team/*``. The service's own
    ``HF_TOKEN`` is used."""
    allowed_env: list[str] = Field(default_factory=list)
    """Environment variables of the service that a config may give to its workers (``cluster.env``): names, or prefixes
    followed by ``*``."""
    allowed_origins: list[str] = Field(default_factory=list)
    """Origins of the pages in browsers if there is a proxy in front of the service: ``https://sweeps.example.org``."""
    session_hours: PositiveFloat = 12.0
    """Hours for which a browser stays signed in."""
    max_body_kib: PositiveInt = 256
    """Maximum size of a request's body, in KiB."""
    body_timeout_s: PositiveFloat = 10.0
    """Maximum seconds until a request's body has arrived."""
    requests_per_minute: PositiveInt = 30_000
    """Maximum requests per minute of one token, or of one address if no token is required."""
    changes_per_minute: PositiveInt = 600
    """Maximum number of changing requests per minute of one token, or of one address if no token is required."""
    refusals_per_minute: PositiveInt = 60
    """Maximum requests per minute of one address with an invalid token or none."""
    expensive_at_once: PositiveInt = 2
    """Maximum number of concurrent expensive operations, such as reports and comparisons; further ones get status
    429."""
    runner_priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Highest priority that a token with the role ``run`` may give a job; an admin may give any. Schedules have the
    priority of their file, by default 0."""
    connections: PositiveInt = 1000
    """Maximum number of connections; further ones are closed at once."""
    connections_per_address: PositiveInt = 250
    """Deprecated and ignored: limit the connections of an address in the proxy."""
    plans_at_once: PositiveInt = 3
    """Maximum number of sweeps that are composed and checked concurrently, each in a child process; one user cannot
    occupy all slots if there are several."""
    plan_within_s: PositiveFloat = 60.0
    """Maximum seconds for composing and checking a sweep, including the wait for a slot; a request that takes longer is
    refused."""
    max_space: PositiveInt = 100
    """Maximum number of paths in a sweep's space."""
    max_choices: PositiveInt = 1000
    """Maximum total number of choices and other values in a sweep's space and initial points."""
    max_points: PositiveInt = 500
    """Maximum number of a sweep's initial points."""
    max_warm_starts: PositiveInt = 20
    """Maximum number of earlier sweeps for a warm start."""
    max_constraints: PositiveInt = 50
    """Maximum number of a sweep's constraints."""
    max_schedules: PositiveInt = 50
    """Maximum number of schedules that a user with the role ``run`` may have saved."""
    max_overrides: PositiveInt = 200
    """Maximum number of overrides or changes in a request."""
    max_value_length: PositiveInt = 10_000
    """Maximum number of characters of an override."""
    max_depth: Annotated[int, Field(ge=4, le=100)] = 20
    """Maximum nesting depth of a request's JSON and of an override."""
