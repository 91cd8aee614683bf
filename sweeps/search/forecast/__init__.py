"""Forecast of the remaining work of a running search. Begin with ``search_forecast``."""
