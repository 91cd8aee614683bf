"""The driver: the process that runs one sweep. Begin with ``run``, which shows a sweep from start to end.

``session`` has the event loop of a running sweep: ``worker_events`` takes what workers post, ``trial_lifecycle`` what
Tune reports of trials, and both keep ``sweep_state``, which views show. ``tuner`` builds Tune's part of it.
"""
