"""Advisors: knowledge beside the metric that guides the search: failed trials, memory use and priors.

Begin with ``advisor``.
"""
