"""Execution of trials on the cluster. Begin with ``trainable``, Tune's side of a trial.

``worker_group`` starts, reuses and rebuilds the worker processes, which run ``worker_loop``; ``broker`` passes events
and assignments between workers, trials and the driver, with the state machine of ``attempt``.
"""
