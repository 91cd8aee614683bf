"""Trials that other programs made: read from an Optuna study, an MLflow experiment or a table, and converted to points.

Begin with ``load``. One file reads each kind of source; ``parameter_names`` finds the config paths of its parameters,
and ``points`` converts its trials.
"""
