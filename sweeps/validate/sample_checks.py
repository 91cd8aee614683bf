"""Checks that a data set that ships with Sweeps has enough samples for a batch; their sizes are known without reading
them."""

from __future__ import annotations

import math

from sweeps.config import SweepConfig
from sweeps.errors import ConfigError
from sweeps_train.config import DigitsData, TableData

DIGITS = (1797, 10)
"""Samples and classes of scikit-learn's digits."""
TABLES = {"builtin:breast_cancer": (569, 2), "builtin:diabetes": (442, 1), "builtin:wine": (178, 3)}
"""Rows and classes of scikit-learn's tables; a table with a numeric target counts as one class of all rows."""


def check_samples(config: SweepConfig) -> None:
    """
    Raises:
        ConfigError: The held-out part leaves a class without samples, or the training part none for a whole batch.
    """
    data, size = config.data, _size(config)
    if size is None or config.loop is None:
        return
    assert isinstance(data, DigitsData | TableData)
    num_samples, num_classes = size
    held_out = math.ceil(data.eval_fraction * num_samples)
    if min(held_out, num_samples - held_out) < num_classes:
        raise ConfigError(
            f"data.eval_fraction={data.eval_fraction:g}: holds out {held_out:,} of {num_samples:,} samples; leave at "
            f"least {num_classes} to train and {num_classes} to evaluate"
        )
    used = max(num_classes, math.ceil(data.train_fraction * (num_samples - held_out)))
    if config.loop.global_batch_size > used:
        larger = f" that data.train_fraction={data.train_fraction:g} leaves" if data.train_fraction < 1 else ""
        fix = "a larger data.train_fraction" if larger else "a smaller data.eval_fraction"
        raise ConfigError(
            f"train.global_batch_size={config.loop.global_batch_size}: is more than the {used:,} training "
            f"sample{'s'[: used != 1]}{larger}; use at most {used:,}, or {fix}"
        )


def _size(config: SweepConfig) -> tuple[int, int] | None:
    """Numbers of samples and classes; None if they are known only after reading the data."""
    match config.data:
        case DigitsData():
            return DIGITS
        case TableData(path=path, target="target", eval_path=None, group=None, time=None) if path in TABLES:
            rows, classes = TABLES[path]
            if config.task.kind == "regression":
                return rows, 1
            return (rows, classes) if config.task.kind == "classification" and classes > 1 else None
    return None
