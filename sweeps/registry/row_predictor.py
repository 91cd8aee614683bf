"""MLflow's loader of a model for tables, with the encoding of its columns. This file and ``sweeps_train`` are copied
into the registered model, which takes raw rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc.model import PythonModel, PythonModelContext

from sweeps_train import load_model


class RowPredictor(PythonModel):
    """Predicts the target of rows. ``unwrap_python_model().model`` is the object that ``sweeps_train.load_model``
    returns."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load the model from the checkpoint."""
        self.model: Any = load_model(Path(context.artifacts["checkpoint"]))

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the column ``prediction``, and for classification the probability of each class, for a frame with the
        columns of the training data, in any order."""
        predictions: pd.DataFrame = self.model.predict(model_input)
        return predictions


mlflow.models.set_model(RowPredictor())
