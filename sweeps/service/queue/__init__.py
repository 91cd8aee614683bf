"""The queue: submitted jobs, the order in which they start, and the processes that run their sweeps. Begin with
``jobs``."""
