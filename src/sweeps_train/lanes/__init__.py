"""Lanes of a worker group: each holds one training (``lane.py``). Several on one frozen base: ``shared_group.py``."""
