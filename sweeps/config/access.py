"""The schema of who may do what through the service, and what a config that comes through it may reach."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt


@dataclass(config=STRICT, kw_only=True)
class Access:
    """What the service lets in. What is not named here is not allowed."""

    allowed_targets: list[str] = Field(default_factory=list)
    """Import paths that a ``_target_`` may have: ``my_project.training.train``, or ``my_project.training.*`` for all
    functions and classes that this module defines. They run with the service's rights."""
    allowed_folders: list[str] = Field(default_factory=list)
    """Folders whose files a config may name, as data or as a model, links in them followed."""
    allowed_uris: list[str] = Field(default_factory=list)
    """Where addresses may lead that a config names as data, as a model or as its tracking server: each is the start of
    an address, ending with a slash (``s3://our-data/``), or the whole of one."""
    allowed_hub: list[str] = Field(default_factory=lambda: ["*"])
    """Names on the Hugging Face hub that a config may load, ``*`` standing for anything: ``our-team/*``. Loading is
    with the service's own ``HF_TOKEN``."""
    allowed_origins: list[str] = Field(default_factory=list)
    """Addresses under which browsers reach the pages, where a proxy stands before the service:
    ``https://sweeps.example.org``."""
    session_hours: PositiveFloat = 12.0
    """How long a browser stays signed in."""
    max_body_kib: PositiveInt = 256
    """Largest body of a request, in KiB."""
    body_timeout_s: PositiveFloat = 10.0
    """Seconds within which a request's body must have come."""
    requests_per_minute: PositiveInt = 30_000
    """Of one token; of one address, where no token is demanded."""
    changes_per_minute: PositiveInt = 600
    """Requests among these that change something."""
    refusals_per_minute: PositiveInt = 60
    """Requests of one address with a wrong token, or without one."""
    expensive_at_once: PositiveInt = 2
    """Reports, comparisons and the like that are made at the same time; further ones are asked to come again."""
    runner_priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Highest priority that a token with the role ``run`` may give a job; that of schedules is 0 unless theirs says
    otherwise. An admin may give any."""
    connections: PositiveInt = 1000
    """Connections at once; idle ones are closed to make room, and only then are new ones refused."""
    connections_per_address: PositiveInt = 250
    """Maximum connections of one address: one client, or all clients behind one proxy."""
    plans_at_once: PositiveInt = 3
    """Sweeps that are composed and checked at the same time, each in a process of its own; one user's never in all
    places, if there are several."""
    plan_within_s: PositiveFloat = 60.0
    """Seconds that this may take, and may wait for its turn; what takes longer is refused."""
    max_space: PositiveInt = 100
    """Paths that one sweep may search."""
    max_choices: PositiveInt = 1000
    """Choices and other single values of all these paths and points together."""
    max_points: PositiveInt = 500
    """Points that one sweep may try first."""
    max_warm_starts: PositiveInt = 20
    """Earlier sweeps that one may learn from."""
    max_constraints: PositiveInt = 50
    """Constraints of one sweep."""
    max_overrides: PositiveInt = 200
    """Overrides, or changes, of one request."""
    max_value_length: PositiveInt = 10_000
    """Characters of one override."""
    max_depth: Annotated[int, Field(ge=4, le=100)] = 20
    """Brackets within brackets, of a request's JSON and of an override."""
