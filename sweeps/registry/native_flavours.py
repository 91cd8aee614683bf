"""Adds the MLflow flavour of an estimator's own library to the model for raw rows."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.models import Model

LIBRARIES = {"sklearn": "pickled_model", "xgboost": "data", "lightgbm": "data"}
"""Libraries with an MLflow flavour, and the key in the flavour that names the estimator's file."""


@dataclass(frozen=True)
class EstimatorFlavours:
    """MLflow's pyfunc flavour of a model for raw rows, combined with that of its estimator, which takes encoded
    rows."""

    estimator: Any
    """Fitted estimator."""
    library: str
    """One of ``LIBRARIES``."""

    def save_model(self, path: str, mlflow_model: Model, **arguments: Any) -> None:
        """Save a model as ``mlflow.pyfunc`` does, with its arguments, and add the file and the flavour of the
        estimator. The description of the model gets both flavours."""
        import mlflow.pyfunc
        from mlflow.models import Model

        mlflow.pyfunc.save_model(path=path, mlflow_model=mlflow_model, **arguments)
        flavour = importlib.import_module(f"mlflow.{self.library}")
        # XGBoost has a format of its own. The others are pickled, as the estimator in the checkpoint is: MLflow's
        # default, skops, loads only classes that it is told to trust.
        how = {} if self.library == "xgboost" else {"serialization_format": "cloudpickle"}
        alone = Model()
        with TemporaryDirectory() as folder:
            flavour.save_model(
                self.estimator,
                path=f"{folder}/model",
                mlflow_model=alone,
                pip_requirements=arguments["pip_requirements"],
                **how,
            )
            settings = alone.flavors[self.library]
            shutil.copy(Path(folder, "model", settings[LIBRARIES[self.library]]), path)
        code = mlflow_model.flavors["python_function"].get("code")  # the user's own class may be in it
        mlflow_model.add_flavor(self.library, **{**settings, "code": code})
        mlflow_model.save(str(Path(path) / "MLmodel"))
