"""Nights of a schedule, which build on each other: warm start, promotion of the champion, and detection of regressions.
Begin with ``promotion_worker``."""
