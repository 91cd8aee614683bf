"""Schedules: cron lines, the sweeps that they start, and what became of every firing."""
