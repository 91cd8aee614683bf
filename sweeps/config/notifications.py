"""Schema of ``notifications`` of a service: channels and their events."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT
from sweeps_train.config.fields import NonEmpty

Event = Literal["finished", "failed", "budget", "regression", "promoted"]
EVENTS: tuple[Event, ...] = get_args(Event)


@dataclass(config=STRICT, kw_only=True)
class Channel:
    """A channel for messages. Its address is a secret, so the config only names where it is stored."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=100)]
    """Name in logs and on pages."""
    url_env: NonEmpty | None = None
    """Environment variable with the address."""
    url_file: NonEmpty | None = None
    """File that contains only the address."""
    events: list[Event] = Field(default_factory=lambda: list(EVENTS))
    """Events to send. ``budget``: a sweep has used up its time or cost; ``regression`` and ``promoted``: results of
    nights; ``finished`` and ``failed``: ends of any other sweep."""
    projects: list[str] = Field(default_factory=list)
    """Projects of the sweeps; default: all."""
    schedules: list[str] = Field(default_factory=list)
    """Schedules of the sweeps; default: all sweeps, including those that users submit."""

    def __post_init__(self) -> None:
        if (self.url_env is None) == (self.url_file is None):
            raise ValueError(f"{self.name}: set where its address is stored: url_env=VARIABLE or url_file=PATH")
