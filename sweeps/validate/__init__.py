"""Checks of a sweep before anything starts: values, the search, and the code and files that a config names. Begin with
``config_checks.check_sweep``.
"""
