"""Removes checkpoints and runs of ended trials that are no longer needed; those of a sweep's best trials are kept.

Begin with ``cleaning``; ``policy`` has the user's conditions, and ``selection`` applies them.
"""
