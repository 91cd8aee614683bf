"""Devices of a worker: their kinds, speed and use, and those that are slow or compute wrong numbers."""
