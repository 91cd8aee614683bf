"""Schema of a stage of a search: cheaper trainings that come before those of the sweep."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveInt
from sweeps_train.config.reach import Text


@dataclass(config=STRICT, kw_only=True)
class Stage:
    """Cheaper trainings, with the sweep's space, sampler and scheduler, that come before those of the sweep."""

    overrides: Annotated[list[Text], Field(min_length=1)]
    """Overrides that make a training cheaper, such as ``[train.max_steps=100, model=tiny_llama]``; of the sections
    task, model, data, train, strategy and checkpoint."""
    num_trials: PositiveInt
    """Number of trials of this stage."""
    keep: PositiveInt = 5
    """Number of its best points that the next stage, or after the last one the sweep, trains first; of similar ones the
    best. Their values in both show how far the orders agree."""
