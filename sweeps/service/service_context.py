"""Config, database, clock and folders of a service, which its parts share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine

from sweeps.config.service import Service
from sweeps.service.clock import Clock


@dataclass(eq=False)
class ServiceContext:
    """Config, database, clock and folders that the parts of a service share."""

    config: Service
    database: Engine
    clock: Clock = field(default_factory=Clock)
    config_dirs: Sequence[Path] = ()
    """Users' folders of configs, which take precedence over the built-in ones."""
