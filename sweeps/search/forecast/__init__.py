"""Forecast of a search that runs: the work that is left. Begin with
``search_forecast``.
"""
