"""Lanes of a worker group, each of which holds one training (``lane.py``). In ``shared_group.py``, several lanes share
one frozen base model."""
