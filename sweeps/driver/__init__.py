"""The driver: the process that runs one sweep. Begin with ``run``, which tells a sweep from start to end."""
