"""The typed schema of a sweep. ``sweeps.compose`` reads ``conf/`` into it; nothing behind it sees a raw config.

Every field says what it is, with its unit; pydantic reports unknown keys, wrong types and values out of range,
all at once. What one training run needs is defined in ``sweeps_train.config``, which a worker reads too.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from sweeps.config.execution import Cluster, NonEmpty, Scaling, Tracking
from sweeps.config.search import Search
from sweeps.config.space import Distribution
from sweeps_train.config import STRICT, TrainingConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=120)]


@dataclass(config=STRICT, kw_only=True)
class SweepConfig(TrainingConfig):
    """One sweep, whole: what a trial trains, and how the search goes over it."""

    name: Name
    """Start of the sweep's name, to which its starting time is added."""
    search: Search
    scaling: Scaling
    tracking: Tracking
    cluster: Cluster
    space: dict[str, Distribution] = Field(default_factory=dict)
    """Dotted path of a value, or name of a group -> distribution."""
    output_dir: NonEmpty = "outputs"
    """Folder for checkpoints and Ray's files, one subfolder a sweep."""

    def training(self) -> TrainingConfig:
        """The part that a worker needs."""
        return TrainingConfig(
            task=self.task,
            model=self.model,
            data=self.data,
            train=self.train,
            strategy=self.strategy,
            checkpoint=self.checkpoint,
            seed=self.seed,
        )


SWEEP_CONFIG: TypeAdapter[SweepConfig] = TypeAdapter(SweepConfig)
"""Reads a ``SweepConfig`` from plain dicts."""
