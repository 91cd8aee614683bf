"""Schema of tasks: what is trained, and which metrics it reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT, PositiveFloat
from sweeps_train.config.reach import Flag, Import, Reach, Text
from sweeps_train.config.table import PositiveClass


@dataclass(config=STRICT, kw_only=True)
class CausalLMTask:
    """Next-token prediction; the loss is the mean over the tokens that count (no padding, no prompts)."""

    kind: Literal["causal_lm"]
    metrics: list[Text] = Field(
        default_factory=lambda: ["eval/loss", "eval/perplexity", "train/loss", "train/tokens_per_second"]
    )
    """Metrics that the task reports, each of which a search may optimise."""


@dataclass(config=STRICT, kw_only=True)
class ImageClassificationTask:
    """Classification of images, or of a user's own samples, by cross-entropy."""

    kind: Literal["image_classification"]
    metrics: list[Text] = Field(
        default_factory=lambda: ["eval/loss", "eval/accuracy", "train/loss", "train/samples_per_second"]
    )
    """Metrics that the task reports, each of which a search may optimise."""


@dataclass(config=STRICT, kw_only=True)
class ClassificationTask:
    """Classification of the rows of a table, by cross-entropy."""

    kind: Literal["classification"]
    class_weight: Literal["none", "balanced"] = "none"
    """``balanced``: every class has the same total weight in the loss, however many rows it has."""
    positive_class: PositiveClass = None
    """Class of interest, such as the rare one. With it, ``eval/f1_positive``, ``eval/precision_positive`` and
    ``eval/recall_positive`` are reported for this class against all others."""
    metrics: list[Text] = Field(
        default_factory=lambda: [
            *("eval/loss", "eval/accuracy", "eval/f1", "eval/roc_auc", "eval/log_loss"),
            *("train/loss", "train/samples_per_second"),
        ]
    )
    """Metrics that the task reports, each of which a search may optimise. ``eval/f1`` and, with more than two classes,
    ``eval/roc_auc`` (each class against the others) are means over the classes."""


@dataclass(config=STRICT, kw_only=True)
class RegressionTask:
    """Regression: prediction of a number for each row of a table."""

    kind: Literal["regression"]
    loss: Literal["squared", "absolute", "huber"] = "squared"
    """Error that is minimised, in standard deviations of the target."""
    metrics: list[Text] = Field(
        default_factory=lambda: [
            *("eval/loss", "eval/mae", "eval/rmse", "eval/r2"),
            *("train/loss", "train/samples_per_second"),
        ]
    )
    """Metrics that the task reports, each of which a search may optimise. ``eval/mae`` and ``eval/rmse`` are in the
    units of the target."""


TableTask = ClassificationTask | RegressionTask
Task = Annotated[CausalLMTask | ImageClassificationTask | TableTask, Field(discriminator="kind")]


@dataclass(config=STRICT, kw_only=True)
class RayDataset:
    """A Ray Data set, made by a function."""

    target: Import = Field(alias="_target_")
    """Import path of a function that returns a ``ray.data.Dataset``, or a mapping of several by name."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Keyword arguments of the function; each value can be searched as ``task.datasets.NAME.arguments.ARGUMENT``."""


@dataclass(config=STRICT, kw_only=True)
class DatasetConfig:
    """Options of Ray Data for ``task.datasets``."""

    datasets_to_split: Literal["all"] | list[Text] = "all"
    """Names of the datasets of which each worker reads its own part, or ``all``. Every worker reads all rows of the
    other datasets."""
    enable_shard_locality: Flag = True
    """Whether a worker preferably reads blocks that are on its node."""
    preserve_order: Flag = False
    """Whether blocks are read in their order, so that the rows have the same order in every epoch."""
    num_cpus: PositiveFloat = 1.0
    """CPUs for Ray Data in addition to a trial's workers: this number is kept free for each trial, and each of its
    datasets uses at most this number. A task that reads or maps needs one CPU by default."""


@dataclass(config=STRICT, kw_only=True)
class FunctionTask:
    """A user's own training code as a Ray Train function: every worker calls it, it reports with ``ray.train.report``
    and resumes from ``ray.train.get_checkpoint``. Code of other frameworks is adapted."""

    kind: Literal["function"]
    framework: Literal["ray_train", "huggingface", "lightning", "script"] = "ray_train"
    """Kind of ``_target_``: ``ray_train``, a Ray Train function; ``huggingface``, a function that returns a
    ``transformers.Trainer``, which is trained, reports its evaluations and resumes from its checkpoints; ``lightning``,
    likewise for a function that returns a ``lightning.pytorch`` Trainer, a LightningModule and, if they are separate,
    its data; ``script``, a file or module for ``torchrun`` that takes arguments as ``--name=value`` and prints its
    reports as JSON."""
    target: Import = Field(alias="_target_")
    """Import path of the function."""
    arguments: Annotated[dict[str, Any], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Mapping that the function is called with; each value can be searched as ``task.arguments.NAME``."""
    datasets: Annotated[dict[str, RayDataset], Reach.ARGUMENTS] = Field(default_factory=dict)
    """Ray Data sets that the function gets by ``ray.train.get_dataset_shard(NAME)``, by name."""
    dataset_config: DatasetConfig = Field(default_factory=DatasetConfig)
    """Options for ``datasets``."""
    working_folder: Annotated[str | None, Reach.FOLDER] = None
    """Folder in which the function works, relative to the one in which the sweep was started (``.``); default: a folder
    of the trial's own."""
    metrics: list[Text] = Field(default_factory=list)
    """Metrics that the function reports; with this list, a misspelt ``search.metric`` is found before anything
    starts."""

    def __post_init__(self) -> None:
        if self.datasets and self.framework == "script":
            raise ValueError(
                f"datasets={list(self.datasets)}: a script runs in a process of its own, out of reach of Ray Data; "
                "remove datasets, or use a function (framework=ray_train)"
            )

    @property
    def data_cpus(self) -> float:
        """CPUs that a trial needs in addition to its workers."""
        return self.dataset_config.num_cpus if self.datasets else 0.0
