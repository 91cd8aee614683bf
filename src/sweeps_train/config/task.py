"""Schema of tasks: what is trained, and which metrics it reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from sweeps_train.config.fields import STRICT
from sweeps_train.config.reach import Import, Reach, Text


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
    """Cross-entropy over classes."""

    kind: Literal["image_classification"]
    metrics: list[Text] = Field(
        default_factory=lambda: ["eval/loss", "eval/accuracy", "train/loss", "train/samples_per_second"]
    )
    """Metrics that the task reports, each of which a search may optimise."""


Task = Annotated[CausalLMTask | ImageClassificationTask, Field(discriminator="kind")]


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
    metrics: list[Text] = Field(default_factory=list)
    """Metrics that it reports; with them, a misspelt ``search.metric`` is found before anything starts."""
