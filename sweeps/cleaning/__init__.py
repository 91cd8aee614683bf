"""Removes checkpoints and runs of ended trials that are no longer needed, but never the best of a sweep.

Begin with ``cleaning``; ``policy`` has the user's conditions, and ``selection`` applies them.
"""
