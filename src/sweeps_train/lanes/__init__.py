"""Lanes of a worker group, each of which holds one training (``lane.py``). In ``shared_group.py`` several share one
frozen base."""
