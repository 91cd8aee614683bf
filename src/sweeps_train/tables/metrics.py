"""Metrics of predictions for a table, computed over all held-out rows at once."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
CLASSIFICATION_METRICS = ("eval/loss", "eval/log_loss", "eval/accuracy", "eval/f1", "eval/roc_auc")
POSITIVE_METRICS = ("eval/f1_positive", "eval/precision_positive", "eval/recall_positive")
"""Metrics of ``task.positive_class``."""


def classification_metrics(
    probabilities: Floats,
    classes: npt.NDArray[np.int64],
    weights: Floats | None = None,
    positive: int | None = None,
) -> dict[str, float]:
    """Compute metrics of predicted class probabilities; all NaN if the predictions are not finite.

    Args:
        probabilities: Of shape (rows, classes), each row with the sum 1.
        classes: True class of each row.
        weights: Weight of each class in ``eval/loss``; default: all the same.
        positive: Index of the class that has metrics of its own; default: none.

    Returns:
        ``eval/loss`` (weighted cross-entropy), ``eval/log_loss`` (cross-entropy), ``eval/accuracy``; ``eval/f1`` and
        ``eval/roc_auc`` as means over classes, the latter only over classes that some rows have and others do not; with
        a positive class also those of ``POSITIVE_METRICS``.

    Example:
        >>> classification_metrics(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1]))["eval/roc_auc"]
        1.0
    """
    if not np.isfinite(probabilities).all():
        names = (*CLASSIFICATION_METRICS, *(POSITIVE_METRICS if positive is not None else ()))
        return dict.fromkeys(names, math.nan)
    # A probability of 0 for the true class has an infinite loss; clipped as in scikit-learn.
    likely = np.clip(probabilities[np.arange(len(classes)), classes], np.finfo(np.float64).eps, 1.0)
    losses, predicted = -np.log(likely), probabilities.argmax(axis=1)
    weighted = losses if weights is None else losses * weights[classes]
    return {
        "eval/loss": float(weighted.mean()),
        "eval/log_loss": float(losses.mean()),
        "eval/accuracy": float((predicted == classes).mean()),
        **_f1(predicted, classes, probabilities.shape[1], positive),
        "eval/roc_auc": _roc_auc(probabilities, classes),
    }


def label_metrics(
    predicted: npt.NDArray[np.int64], classes: npt.NDArray[np.int64], num_classes: int, positive: int | None = None
) -> dict[str, float]:
    """Compute metrics of predicted classes without probabilities; the class with the index ``positive`` also has
    metrics of its own.

    Returns:
        ``eval/loss`` (the part of wrong predictions), ``eval/accuracy`` and ``eval/f1``; with a positive class also
        those of ``POSITIVE_METRICS``.

    Example:
        >>> label_metrics(np.array([0, 1]), np.array([0, 0]), 2)["eval/loss"]
        0.5
    """
    accuracy = float((predicted == classes).mean())
    return {"eval/loss": 1 - accuracy, "eval/accuracy": accuracy, **_f1(predicted, classes, num_classes, positive)}


def _f1(
    predicted: npt.NDArray[np.int64], classes: npt.NDArray[np.int64], num_classes: int, positive: int | None
) -> dict[str, float]:
    """Return ``eval/f1`` as the mean over the classes that some rows have or are predicted to have, and the F1,
    precision and recall of the positive class if there is one."""
    from sklearn.metrics import precision_recall_fscore_support

    precision, recall, f1, counts = precision_recall_fscore_support(
        classes, predicted, labels=range(num_classes), zero_division=0
    )
    occurs = (counts > 0) | (np.bincount(predicted, minlength=num_classes) > 0)
    metrics = {"eval/f1": float(f1[occurs].mean())}
    if positive is not None:
        of_class = (f1[positive], precision[positive], recall[positive])
        metrics |= dict(zip(POSITIVE_METRICS, map(float, of_class), strict=True))
    return metrics


def _roc_auc(probabilities: Floats, classes: npt.NDArray[np.int64]) -> float:
    from sklearn.metrics import roc_auc_score

    number = probabilities.shape[1]
    chosen = [1] if number == 2 else range(number)
    areas = [
        roc_auc_score(classes == each, probabilities[:, each])
        for each in chosen
        if 0 < (classes == each).sum() < len(classes)
    ]
    return float(np.mean(areas)) if areas else math.nan


def regression_metrics(predictions: Floats, values: Floats, scale: float, loss: str = "squared") -> dict[str, float]:
    """Compute metrics of predicted numbers; all NaN if the predictions are not finite.

    Args:
        predictions: One for each row, in the units of the target.
        values: True values.
        scale: Standard deviation of the target in the training rows.
        loss: Error that ``eval/loss`` is the mean of, in units of ``scale``: ``squared``, ``absolute`` or ``huber``.

    Returns:
        ``eval/loss``, ``eval/mae``, ``eval/rmse`` and ``eval/r2``; the last is NaN if all values are the same.

    Example:
        >>> regression_metrics(np.array([1.0, 2.0]), np.array([1.0, 4.0]), scale=1.0)["eval/mae"]
        1.0
    """
    if not np.isfinite(predictions).all():
        return dict.fromkeys(("eval/loss", "eval/mae", "eval/rmse", "eval/r2"), math.nan)
    with np.errstate(over="ignore"):  # a diverged training has an infinite loss
        errors = predictions - values
        scaled = np.abs(errors) / scale
        losses = {
            "squared": scaled**2,
            "absolute": scaled,
            "huber": np.where(scaled < 1, scaled**2 / 2, scaled - 0.5),
        }
        spread, squared = float(((values - values.mean()) ** 2).sum()), float((errors**2).sum())
    return {
        "eval/loss": float(losses[loss].mean()),
        "eval/mae": float(np.abs(errors).mean()),
        "eval/rmse": math.sqrt(squared / len(values)),
        "eval/r2": 1 - squared / spread if spread else math.nan,
    }
