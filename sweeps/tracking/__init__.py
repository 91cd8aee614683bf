"""Everything between a sweep and MLflow: ``recorder`` writes a running sweep, ``reader`` reads it back as
``record``. Importing this package, ``record`` or ``reader`` imports no MLflow.
"""

import os


def default_uri() -> str:
    """The store that ``MLFLOW_TRACKING_URI`` names, else the SQLite file in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
