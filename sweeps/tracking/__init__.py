"""Everything between a sweep and MLflow: ``recorder`` writes a running sweep, ``reader`` reads it back as
``record``. Importing this package, ``record`` or ``reader`` imports no MLflow.
"""
