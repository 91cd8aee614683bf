"""Checks of the machines, the storage and the tracking store that a sweep would use. Begin reading in ``doctor.py``."""
