"""Schema of trials of other programs with which a search starts warm."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config import STRICT
from sweeps_train.config.fields import NonEmpty
from sweeps_train.config.reach import Reach

Address = Annotated[NonEmpty, Reach.TRIALS]
"""File or address; ``$NAME`` is the value of an environment variable, for addresses with a password."""
ParameterNames = Annotated[dict[str, str], Reach.NOTHING]
FixedValues = Annotated[dict[str, Any], Reach.NOTHING]
Mode = Literal["min", "max"]


@dataclass(config=STRICT, kw_only=True)
class OptunaStudy:
    """Trials of an Optuna study. The study's own direction tells which trials are good."""

    kind: Literal["optuna"]
    """Name of this kind of source."""
    storage: Address
    """File of a journal or an SQLite database, or URL of a database (``postgresql://...``). ``$NAME`` is the value of
    an environment variable."""
    study: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Name of the study; default: the only one in the storage."""
    objective: Annotated[int, Field(ge=0)] | None = None
    """Number of the objective, from 0, if the study has several."""
    parameters: ParameterNames = Field(default_factory=dict)
    """Paths of this config by the study's parameter names: ``{lr: train.lr}``. Default: the searched path that ends in
    the name."""
    fixed: FixedValues = Field(default_factory=dict)
    """Values that all trials of the study had, by path of this config, for parameters that it did not search."""


@dataclass(config=STRICT, kw_only=True)
class MLflowExperiment:
    """Finished runs of an MLflow experiment that were not recorded by Sweeps."""

    kind: Literal["mlflow"]
    """Name of this kind of source."""
    experiment: Annotated[NonEmpty, Reach.NOTHING]
    """Name of the experiment."""
    uri: Annotated[NonEmpty | None, Reach.TRIALS] = None
    """Tracking URI; default: ``tracking.uri``. ``$NAME`` is the value of an environment variable."""
    metric: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Metric whose last value counts; default: the first of ``search.metric``."""
    mode: Mode | None = None
    """Whether a smaller or a larger value of the metric is better; default: as in this search."""
    filter: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Condition on the runs in MLflow's search language, such as ``tags.team = 'vision'``."""
    parameters: ParameterNames = Field(default_factory=dict)
    """Paths of this config by the runs' parameter names: ``{learning_rate: train.lr}``. Default: the searched path that
    ends in the name."""
    fixed: FixedValues = Field(default_factory=dict)
    """Values that all runs had, by path of this config, for parameters that they did not record."""


@dataclass(config=STRICT, kw_only=True)
class TrialTable:
    """A table with one row for each trial: a CSV, Parquet or JSON Lines file."""

    kind: Literal["table"]
    """Name of this kind of source."""
    path: Address
    """File, of the type ``.csv``, ``.tsv``, ``.parquet`` or ``.jsonl``."""
    metric: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Column with the trial's value; default: the first of ``search.metric``."""
    mode: Mode | None = None
    """Whether a smaller or a larger value of the metric is better; default: as in this search."""
    state: Annotated[NonEmpty | None, Reach.NOTHING] = None
    """Column with the trial's state, by which failed and running trials are left out; default: ``state`` or
    ``status``, if there is one."""
    parameters: ParameterNames = Field(default_factory=dict)
    """Paths of this config by column: ``{learning_rate: train.lr}``. Default: the searched path that ends in the
    column's name."""
    fixed: FixedValues = Field(default_factory=dict)
    """Values that all trials had, by path of this config, for parameters without a column."""


OtherTrials = OptunaStudy | MLflowExperiment | TrialTable
WarmStart = str | Annotated[OtherTrials, Field(discriminator="kind")]
"""Name of a sweep, or trials of another program."""
