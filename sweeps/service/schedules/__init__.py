"""Schedules: cron lines, the sweeps that they start, and the outcome of every firing. Begin with ``scheduler``."""
