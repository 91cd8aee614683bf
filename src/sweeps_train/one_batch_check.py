"""Checks of data and model before a search: values that cannot be learned from, and one forward pass on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import TensorDataset

from sweeps_train.config import (
    ClassificationTask,
    CustomData,
    CustomModel,
    DigitsData,
    TableData,
    TableTask,
    TrainingConfig,
)
from sweeps_train.config.strategy import num_stages
from sweeps_train.data.images import IGNORED_LABEL, ImageSamples
from sweeps_train.data.sample_order import Batch
from sweeps_train.reports.progress import check_enough_samples
from sweeps_train.steps.random_state import seed_all
from sweeps_train.targets import call_target
from sweeps_train.tasks.image_classification import ImageClassification, build_both_samples
from sweeps_train.tasks.task import Task
from sweeps_train.workers.worker_cache import cached

MOST_PARAMETERS = 100_000_000
"""Maximum parameters of a user's model that is built for the check: 400 MB in float32."""
SAMPLES = 256
"""Number of samples of each split that are read, spread evenly over it."""
ALL_VALUES = 2**26
"""Maximum number of values of an in-memory data set for reading all its samples."""
BATCH = 8
"""Samples in the forward pass."""


@dataclass(frozen=True)
class Finding:
    """A problem in the data or model that the user should know about before the search."""

    kind: Literal["mistake", "warning"]
    """Kind of problem; because of a ``mistake``, every training would fail."""
    text: str


def examine(config: TrainingConfig, num_workers: int) -> Iterator[Finding]:
    """Find problems in a training's data and in a forward pass of one batch, and check that a user's own model has the
    stages that a pipeline of this many workers needs.

    Raises:
        Exception: Any error of the user's code.
    """
    if config.task.kind == "causal_lm":
        yield from _examine_text(config)
        return
    if isinstance(config.data, TableData):
        yield from _examine_table(config)
        return
    assert isinstance(config.data, DigitsData | CustomData)
    data = config.data
    with _stage("data"):
        splits = cached("images", data, lambda: build_both_samples(data))
        excerpts = [
            _Excerpt(name, samples, _indices(samples))
            for name, samples in zip(("training", "held-out"), splits, strict=True)
        ]
    mistakes = [finding for excerpt in excerpts for finding in excerpt.check_labels()]
    if mistakes:
        yield from mistakes
        return
    if isinstance(config.model, CustomModel) and (count := _parameters(config.model)) > MOST_PARAMETERS:
        text = f"has {count:,} parameters; models of more than {MOST_PARAMETERS:,} are not tried before the sweep"
        yield Finding("warning", f"model._target_={config.model.target}: {text}")
        return
    with _stage("model"):
        task = ImageClassification(config, None)
        found = [finding for excerpt in excerpts for finding in excerpt.check_forward(task)]
        if num_workers > 1 and (stages := num_stages(config.strategy, num_workers)) > 1:
            from sweeps_train.strategies.pipeline_stages import Stage

            Stage(task.model, 0, stages)
    yield from found


@contextmanager
def _stage(section: str) -> Iterator[None]:
    """Add the config section that an exception concerns to its message."""
    try:
        yield
    except BaseException as error:
        error.add_note(section)
        raise


class _Excerpt:
    """Some samples of a split."""

    def __init__(self, split: str, samples: ImageSamples, indices: Sequence[int]):
        self._split, self._samples, self._indices = split, samples, indices
        batch: dict[str, Any] = {**samples.batch(indices)}  # a user's data set may return other types than tensors
        inputs, labels = batch["inputs"], batch["labels"]
        self._labels: torch.Tensor | None = labels if isinstance(labels, torch.Tensor) and labels.dim() == 1 else None
        self._has_columns, self._bad = False, torch.zeros(len(indices), 0, dtype=torch.bool)
        """Whether each sample's inputs are a row of a table; and the mask, by sample, of those that are NaN or
        infinite."""
        if isinstance(inputs, torch.Tensor) and inputs.is_floating_point():
            self._has_columns, self._bad = inputs.dim() == 2, ~inputs.isfinite().reshape(len(inputs), -1)
        self._bad_rows: list[int] = self._bad.any(1).nonzero()[:, 0].tolist()

    def check_labels(self) -> Iterator[Finding]:
        labels = self._labels
        if labels is None:
            return
        if labels.is_floating_point():
            bad = int((~labels.isfinite()).sum())
            fault = f"are NaN or infinite in {bad} of {len(labels)} samples" if bad else f"are {labels.dtype} numbers"
            yield Finding("mistake", f"data: {self._split} labels {fault}; give class indices as integers, from 0 on")
        elif len(negative := labels[(labels < 0) & (labels != IGNORED_LABEL)]):
            lowest = int(negative.min())
            yield Finding("mistake", f"data: {self._split} label {lowest} is negative; classes are numbered from 0 on")

    def check_forward(self, task: Task) -> Iterator[Finding]:
        """Run one batch through the model, starting with the samples that have bad values."""
        chosen = [*dict.fromkeys([*self._bad_rows, *range(len(self._indices))])][:BATCH]
        batch = self._samples.batch([self._indices[row] for row in chosen])
        logits, labels = _logits(task, batch, training=self._split == "training"), self._labels
        largest = None if labels is None or labels.is_floating_point() else int(labels.max())
        if largest is not None and logits.dim() == 2 and largest >= logits.shape[1]:
            yield Finding(
                "mistake",
                f"data: {self._split} label {largest} is out of range: the model has {logits.shape[1]} outputs, for "
                f"labels 0 to {logits.shape[1] - 1}; correct the labels or the model's outputs",
            )
            return
        is_finite = bool(task.loss(logits, batch).isfinite())
        if self._bad_rows:
            effect = "which the model tolerates" if is_finite else "so that the loss is not finite"
            yield Finding("warning" if is_finite else "mistake", f"{self._bad_inputs()}, {effect}; clean the data")
        elif not is_finite:
            yield Finding("warning", f"the loss of the first {self._split} batch is not finite")

    def _bad_inputs(self) -> str:
        where = f"data: {self._split} inputs"
        if self._has_columns:
            columns = self._bad.any(0).nonzero()[:, 0].tolist()
            named = ", ".join(map(self._samples.column, columns[:8])) + (", ..." if len(columns) > 8 else "")
            where = f"data: {self._split} feature column{'s' if len(columns) > 1 else ''} {named}"
        return f"{where}: NaN or infinite in {len(self._bad_rows)} of {len(self._bad)} samples"


def _indices(samples: ImageSamples) -> Sequence[int]:
    """Return the indices of all samples of a small in-memory data set, otherwise of some."""
    count = len(samples)
    pairs = samples.pairs
    if type(pairs) is TensorDataset and sum(tensor.numel() for tensor in pairs.tensors) <= ALL_VALUES:
        return range(count)
    return sorted({index * count // min(count, SAMPLES) for index in range(min(count, SAMPLES))})


def _parameters(model: CustomModel) -> int:
    """Return a model's number of parameters, by building it on torch's meta device; 0 if that is not possible."""
    try:
        with torch.device("meta"):
            built = call_target("model", model.target, model.arguments)
    except Exception:  # noqa: BLE001 - the code may need values; building the model with memory will show its errors
        return 0
    return sum(each.numel() for each in built.parameters()) if isinstance(built, nn.Module) else 0


def _examine_text(config: TrainingConfig) -> Iterator[Finding]:
    from sweeps_train.tasks import build_task

    seed_all(config.seed)
    task = build_task(config)
    batch = task.pad(task.train_samples.batch(range(min(2, len(task.train_samples)))))
    if not task.loss(_logits(task, batch, training=True), batch).isfinite():
        yield Finding("warning", "the loss of the first training batch is not finite")


def _examine_table(config: TrainingConfig) -> Iterator[Finding]:
    from sweeps_train.data.table_data import table_samples
    from sweeps_train.tasks import build_task

    assert isinstance(config.data, TableData) and isinstance(config.task, TableTask)
    encoding = table_samples(config.data, config.task.kind)[0]
    if isinstance(config.task, ClassificationTask):
        encoding.positive_index(config.task.positive_class)
    with _stage("model"):
        task = build_task(config)
    check_enough_samples(config.train, len(task.train_samples))
    for split, samples in (("training", task.train_samples), ("held-out", task.eval_samples)):
        batch = samples.batch(range(min(BATCH, len(samples))))
        outputs = _logits(task, batch, training=split == "training")
        wanted = (len(batch["targets"]), task.num_scores)
        if tuple(outputs.shape) != wanted:
            yield Finding(
                "mistake",
                f"model: gives outputs of shape {tuple(outputs.shape)} for {wanted[0]} rows, where {wanted} is needed: "
                "one for each class, or one number; let it take the argument num_outputs",
            )
        elif not task.loss(outputs, batch).isfinite():
            yield Finding("warning", f"the loss of the first {split} batch is not finite")


def _logits(task: Task, batch: Batch, *, training: bool) -> Any:
    with torch.no_grad():
        return task.logits(task.model.train(training), batch)
