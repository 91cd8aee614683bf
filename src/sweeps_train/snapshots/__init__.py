"""Snapshots of a training in memory: taken by its workers, held and written to disk by a process that outlives them."""
