"""Sweeps in MLflow: ``recorder`` writes a running sweep, and ``reader`` reads sweeps as the classes of ``record``.

Begin with ``recorder``, then ``delivery`` and ``journal``. Importing this package, ``record`` or ``reader`` does not
import MLflow.
"""

import os


def default_uri() -> str:
    """Return the tracking URI in ``MLFLOW_TRACKING_URI``, else that of the SQLite file in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
