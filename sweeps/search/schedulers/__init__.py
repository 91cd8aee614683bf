"""Schedulers: they stop, pause and resume trials, or change their values. Begin with ``scheduler``."""
