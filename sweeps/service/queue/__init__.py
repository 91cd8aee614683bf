"""The queue: submitted jobs, who may start next, and the processes that run their sweeps. Begin with ``jobs``."""
