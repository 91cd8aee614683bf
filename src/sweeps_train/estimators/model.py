"""A fitted estimator with the encoding of its table: predictions for raw rows, and its files in a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sweeps_train.tables.encoding import Classes, Features, TableEncoding, load_encoding
from sweeps_train.tables.metrics import classification_metrics, label_metrics, regression_metrics
from sweeps_train.tables.predictions import prediction_frame, to_table

if TYPE_CHECKING:
    import pandas as pd

ESTIMATOR_FILE = "estimator.joblib"
"""File of the estimator, pickled by ``joblib``; loading it runs code in it."""
NATIVE_KEY = "native"
ROUNDING = 1e-3
"""Distance by which a probability may lie outside of 0 to 1, for the rounding of libraries."""


@dataclass(frozen=True)
class EstimatorModel:
    """An estimator and the encoding of its table."""

    estimator: Any
    encoding: TableEncoding
    native: bool
    """Whether the estimator takes a frame with missing values and categories instead of a matrix."""

    def inputs(self, features: Features) -> Any:
        """Return the estimator's inputs for encoded rows."""
        if self.native:
            return self.encoding.frame(features)
        return self.encoding.matrix(features.numbers, features.categories)

    def predict(self, rows: Any) -> pd.DataFrame:
        """Predict the target of rows.

        Args:
            rows: A pandas frame, an Arrow table, or a list of dictionaries, with the columns of the training data.

        Returns:
            A frame with the column ``prediction``; for classes also ``probability_CLASS`` for each of them, if the
            estimator has probabilities.

        Raises:
            ValueError: A column is missing, or has values that cannot be read.
        """
        return prediction_frame(self.encoding, self.outputs(self.encode(rows)))

    def encode(self, rows: Any) -> Any:
        """Return the estimator's inputs for raw rows, which may have any form that ``predict`` takes."""
        return self.inputs(self.encoding.encode(to_table(rows)))

    def outputs(self, inputs: Any) -> npt.NDArray[Any]:
        """Return probabilities of shape (rows, classes), or class indices or numbers of shape (rows,).

        Raises:
            ValueError: What the estimator returns are no probabilities.
        """
        output = self.encoding.output
        if not isinstance(output, Classes):
            return np.asarray(self.estimator.predict(inputs), dtype=np.float64).reshape(-1)
        if hasattr(self.estimator, "predict_proba"):
            # Classes without a training row in a fold get a column of zeros.
            found = np.asarray(self.estimator.predict_proba(inputs), dtype=np.float64)
            if found.size and not -ROUNDING <= found.min() <= found.max() <= 1 + ROUNDING and np.isfinite(found).all():
                raise ValueError(
                    f"task: predict_proba of {type(self.estimator).__name__} returns numbers from {found.min():.3g} to "
                    f"{found.max():.3g}, which are no probabilities; use an objective that has them, such as "
                    "binary:logistic instead of binary:logitraw"
                )
            probabilities = np.zeros((len(found), len(output.values)))
            probabilities[:, np.asarray(self.estimator.classes_, dtype=np.int64)] = found
            return probabilities
        return np.asarray(self.estimator.predict(inputs), dtype=np.int64)

    def metrics(self, inputs: Any, targets: npt.NDArray[Any], positive: int | None = None) -> dict[str, float]:
        """Compute the ``eval/*`` metrics of rows; the class with the index ``positive`` also has metrics of its own."""
        outputs, output = self.outputs(inputs), self.encoding.output
        if not isinstance(output, Classes):
            return regression_metrics(outputs, targets, output.scale)
        if outputs.ndim == 1:
            return label_metrics(outputs, targets, len(output.values), positive)
        return classification_metrics(outputs, targets, positive=positive)

    def save(self, folder: Path) -> None:
        """Write the model into a checkpoint."""
        import joblib

        joblib.dump({"estimator": self.estimator, NATIVE_KEY: self.native}, folder / ESTIMATOR_FILE)
        self.encoding.save(folder)


def load_estimator(folder: Path) -> EstimatorModel:
    """Load a model that ``EstimatorModel.save`` has written."""
    import joblib

    loaded = joblib.load(folder / ESTIMATOR_FILE)
    return EstimatorModel(loaded["estimator"], load_encoding(folder), loaded[NATIVE_KEY])
