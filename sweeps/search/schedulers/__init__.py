"""Schedulers: which trials go on, pause or change their parameters, and how many run at once. Begin with ``build``."""
