"""Recorded sweeps for people: tables on a terminal, data frames, comparisons, figures and the HTML report.

Begin with ``terminal_tables.py`` for the terminal, ``figures/`` for the figures and ``page/report.py`` for the report.
"""
