"""Schema of estimators of scikit-learn, XGBoost, LightGBM, and any class with ``fit`` and ``predict``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, PositiveInt, Seed
from sweeps_train.config.reach import Import, Reach, Text
from sweeps_train.config.table import PositiveClass, TableData
from sweeps_train.config.train import Checkpoint


@dataclass(config=STRICT, kw_only=True)
class EstimatorTask:
    """An estimator, fitted to the rows of a table by one worker with one thread per CPU. One that can be fitted piece
    by piece reports after each piece, so that it can be stopped, and resumed from a checkpoint."""

    kind: Literal["estimator"]
    target: Import = Field(alias="_target_")
    """Import path of the class: ``xgboost.XGBClassifier``, ``sklearn.ensemble.RandomForestRegressor``."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of ``_target_``; each can be searched as ``task.arguments.NAME``."""
    goal: Literal["auto", "classification", "regression"] = "auto"
    """Whether the estimator predicts classes or numbers; auto: as the estimator declares."""
    positive_class: PositiveClass = None
    """Class of interest of a classifier, with metrics of its own, as for ``task=classification``."""
    encoding: Literal["auto", "native", "one_hot"] = "auto"
    """Form of the inputs. ``native``: a pandas frame with missing values and columns of categories; ``one_hot``: scaled
    numbers without gaps, and a column of 0 and 1 for each category; auto: native for XGBoost, LightGBM and
    scikit-learn's ``HistGradientBoosting``, which handle both."""
    report_every: PositiveInt | None = None
    """Boosting rounds, trees or passes over the data between two reports; default: a twentieth of all."""
    patience: PositiveInt | None = None
    """Reports without a better value of ``search.metric`` after which the trial ends; null: it continues to its end."""
    folds: Annotated[int, Field(ge=2)] | None = None
    """Folds of a cross-validation over all rows, instead of a held-out part. After each fold the mean so far is
    reported; at the end the model that is kept is fitted to all rows. The trial's value is that of its last report."""
    metrics: list[Text] = Field(default_factory=list)
    """Metrics that the estimator reports; default: the metrics of its goal, as for ``task=classification`` and
    ``task=regression``."""

    def __post_init__(self) -> None:
        for name in ("report_every", "patience"):
            if self.folds is not None and (value := getattr(self, name)) is not None:
                raise ValueError(f"{name}={value}: with folds={self.folds} each fold is one report; remove {name}")


@dataclass(config=STRICT, kw_only=True)
class EstimatorConfig:
    """Config of a training of an estimator."""

    task: EstimatorTask
    data: TableData
    checkpoint: Checkpoint
    seed: Seed = 0
    """Seed of the estimator (its ``random_state``), unless ``task.arguments`` sets one."""
    needed: list[str] = Field(default_factory=list)
    """Metrics of the process that the search reads, and that every report therefore has."""

    def __post_init__(self) -> None:
        check_folds(self.task, self.data)


def check_folds(task: EstimatorTask, data: TableData) -> None:
    """Raise ``ValueError`` if both a cross-validation and a file of held-out rows are configured."""
    if task.folds is not None and data.eval_path is not None:
        raise ValueError(
            f"task.folds={task.folds}: all rows of data.path are held out in turn, so that "
            f"data.eval_path={data.eval_path} is not read; remove one of them"
        )
