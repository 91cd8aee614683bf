"""Forecast of a search that runs: the work that is left, and what stopping now gives up. Begin with
``search_forecast``.
"""
