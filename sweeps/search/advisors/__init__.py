"""Advisors: what the search learns beside the metric, from failed trials, memory use and priors.

Begin with ``advisor``.
"""
