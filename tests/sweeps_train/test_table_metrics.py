"""Metrics of the predictions for a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from own_tables import data

from sweeps_train.tables.encoding import learn_encoding
from sweeps_train.tables.metrics import classification_metrics, label_metrics, regression_metrics


def test_metrics_are_those_of_scikit_learn() -> None:
    from sklearn import metrics

    draw = np.random.default_rng(0)
    for classes in (2, 4):
        truth = np.concatenate([np.arange(classes), draw.integers(0, classes, 50)])
        scores = draw.dirichlet(np.ones(classes), len(truth))
        ours = classification_metrics(scores, truth)
        assert ours["eval/log_loss"] == pytest.approx(metrics.log_loss(truth, scores))
        assert ours["eval/accuracy"] == metrics.accuracy_score(truth, scores.argmax(1))
        assert ours["eval/f1"] == metrics.f1_score(truth, scores.argmax(1), average="macro")
        chosen = scores[:, 1] if classes == 2 else scores
        assert ours["eval/roc_auc"] == pytest.approx(metrics.roc_auc_score(truth, chosen, multi_class="ovr"))
    values, guesses = draw.normal(size=60), draw.normal(size=60)
    ours = regression_metrics(guesses, values, scale=2.0)
    assert ours["eval/mae"] == pytest.approx(metrics.mean_absolute_error(values, guesses))
    assert ours["eval/rmse"] == pytest.approx(metrics.root_mean_squared_error(values, guesses))
    assert ours["eval/r2"] == pytest.approx(metrics.r2_score(values, guesses))
    assert ours["eval/loss"] == pytest.approx(metrics.mean_squared_error(values, guesses) / 4)


def test_a_positive_class_has_metrics_of_its_own_those_of_scikit_learn() -> None:
    from sklearn import metrics

    draw = np.random.default_rng(0)
    truth, scores = draw.integers(0, 3, 60), draw.dirichlet(np.ones(3), 60)
    predicted = scores.argmax(1)
    for ours in (classification_metrics(scores, truth, positive=2), label_metrics(predicted, truth, 3, 2)):
        assert ours["eval/f1_positive"] == metrics.f1_score(truth == 2, predicted == 2)
        assert ours["eval/precision_positive"] == metrics.precision_score(truth == 2, predicted == 2)
        assert ours["eval/recall_positive"] == metrics.recall_score(truth == 2, predicted == 2)
        assert ours["eval/f1"] == pytest.approx(metrics.f1_score(truth, predicted, average="macro"))


def test_a_class_that_no_row_has_or_is_predicted_to_have_lowers_no_mean() -> None:
    from sklearn import metrics

    for predicted in ([0, 1, 1, 0], [0, 1, 2, 0]):
        ours = label_metrics(np.array(predicted), np.array([0, 1, 1, 0]), 5)
        assert ours["eval/f1"] == pytest.approx(metrics.f1_score([0, 1, 1, 0], predicted, average="macro"))


@pytest.mark.parametrize(("values", "positive"), [([False, True], True), ([0, 1], 1), (["no", "yes"], "yes")])
def test_a_positive_class_is_found_by_its_value(values: list[Any], positive: Any) -> None:
    encoding = learn_encoding(data(drop=[]), "classification", pa.table({"x": [1, 2], "label": values}))
    assert encoding.positive_index(positive) == 1
    assert encoding.positive_index(None) is None
    with pytest.raises(ValueError, match=f"task.positive_class=2: .* use one of {values[0]}, {values[1]}"):
        encoding.positive_index(2)


def test_metrics_of_a_diverged_training_are_nan_and_no_error() -> None:
    assert np.isnan(classification_metrics(np.array([[np.nan, 0.1]]), np.array([0]), positive=1)["eval/f1_positive"])
    assert all(map(np.isnan, classification_metrics(np.array([[np.nan, 0.1]]), np.array([0])).values()))
    assert all(map(np.isnan, regression_metrics(np.array([np.inf]), np.array([0.0]), 1.0).values()))
    assert np.isnan(classification_metrics(np.array([[0.5, 0.5]]), np.array([0]))["eval/roc_auc"])
