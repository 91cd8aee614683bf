"""Schema of a stage of a search: cheaper trainings that precede the sweep's trials."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT, PositiveFloat, PositiveInt
from sweeps_train.config.reach import Reach, Text

Power = Annotated[float, Field(ge=-4, le=4)]


@dataclass(config=STRICT, kw_only=True)
class Stage:
    """Cheaper trainings with the sweep's space, sampler and scheduler, which precede the sweep's trials."""

    overrides: Annotated[list[Text], Field(min_length=1)]
    """Overrides that make a training cheaper, such as ``[train.max_steps=100, model=tiny_llama]``; of the sections
    task, model, data, train, strategy and checkpoint."""
    num_trials: PositiveInt
    """Number of trials of this stage."""
    keep: PositiveInt | None = None
    """Number of this stage's best points that the next stage, or after the last one the sweep, trains first; of similar
    points only the best. The values of a point in both stages show how far the orders agree. Default: 5, limited by the
    trials of both."""
    rescale: Annotated[dict[str, PositiveFloat | dict[str, Power]], Reach.NOTHING] = Field(default_factory=dict)
    """Searched numbers whose best value changes with the size of a training, by path: a factor from this stage to the
    next one (from the last stage, to the sweep), or powers of the ratio by which values of the config change, such as
    ``{train.lr: {model.width: -1}}``."""
