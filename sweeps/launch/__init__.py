"""Submits sweeps to clusters: Ray Jobs, Slurm, Kubernetes; and writes schedules for other schedulers.

Begin with ``submission``, which checks a sweep and makes the command that the cluster runs.
"""
