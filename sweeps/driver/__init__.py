"""Driver of a sweep: the process that runs it. Begin with ``run``, which shows a sweep from start to end.

``session`` has the event loop of a running sweep: ``worker_events`` applies what workers post, ``trial_lifecycle`` what
Tune reports about trials; both update ``sweep_state``, which views show. ``tuner`` builds Tune's part.
"""
