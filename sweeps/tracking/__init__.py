"""Records of sweeps in MLflow: ``recorder`` writes a running sweep, and ``reader`` reads sweeps as the classes of
``record``.

Begin with ``recorder``, then ``delivery`` and ``journal``. Importing this package, ``record`` or ``reader`` does not
import MLflow.
"""
