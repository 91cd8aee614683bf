"""Private names of Ray, Optuna, MLflow and Hydra: the only package that touches them, with one module for each library.

Each module is imported where it is needed and not before, so that a name that a release has moved breaks only what
needs it. ``tests/compat/`` has a contract test for each module, which says in one line what has moved.
"""
