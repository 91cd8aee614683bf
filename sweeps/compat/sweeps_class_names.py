"""MLflow loader for classifiers with named classes: predictions are a table with one column for each class.

MLflow copies this file into the registered model and imports it there by its own name, without Sweeps. It is in
``compat`` because it extends the private loader of MLflow's PyTorch flavour.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow.pytorch
import pandas as pd
from mlflow.models import Model

METADATA_KEY = "sweeps.classes"
"""Key in the model's metadata: class names as a JSON list, in the order of the outputs."""


class NamedClasses:
    """Model of MLflow's PyTorch flavour that predicts a table with one column for each class."""

    def __init__(self, model: Any, names: list[str]) -> None:
        self._model, self._names = model, names

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the model's scores, of shape (samples, classes).

        Args:
            data: Inputs with the shape in the model's signature.
            params: Keyword arguments of the model's ``forward``.
        """
        index = data.index if isinstance(data, pd.DataFrame) else None
        return pd.DataFrame(self._model.predict(data, params).reshape(-1, len(self._names)), index, self._names)


def _load_pyfunc(path: str, model_config: dict[str, Any] | None = None) -> NamedClasses:
    """Load the model; ``mlflow.pyfunc`` calls a function with this name and these arguments."""
    names = json.loads((Model.load(Path(path).parent).metadata or {})[METADATA_KEY])
    return NamedClasses(mlflow.pytorch._load_pyfunc(path, model_config), names)
