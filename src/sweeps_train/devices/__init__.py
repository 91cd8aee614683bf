"""Devices of a worker: their kinds, speed and use, and detection of slow or faulty ones."""
