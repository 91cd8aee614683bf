"""The schema of ``notifications`` of a service: whom it tells of what."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps.config.execution import NonEmpty
from sweeps_train.config import STRICT

Event = Literal["finished", "failed", "budget", "regression", "promoted"]
EVENTS: tuple[Event, ...] = get_args(Event)


@dataclass(config=STRICT, kw_only=True)
class Channel:
    """Somewhere to send messages to. Its address is a secret, and is shown nowhere: say where it stands."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=100)]
    """What it is called in logs and on pages."""
    url_env: NonEmpty | None = None
    """Environment variable that holds its address."""
    url_file: NonEmpty | None = None
    """File that holds its address, and nothing else."""
    events: list[Event] = Field(default_factory=lambda: list(EVENTS))
    """What it is told of. ``budget``: a sweep has used up its hours or its money; ``regression`` and ``promoted``: what
    a night has brought; ``finished`` and ``failed``: how any other sweep has ended."""
    projects: list[str] = Field(default_factory=list)
    """Only of sweeps of these projects; default: of all."""
    schedules: list[str] = Field(default_factory=list)
    """Only of sweeps of these schedules; default: of all sweeps, also those that people submit."""

    def __post_init__(self) -> None:
        if (self.url_env is None) == (self.url_file is None):
            raise ValueError(
                f"{self.name}: say where its address stands: url_env=NAME of an environment variable, or url_file=PATH"
            )
