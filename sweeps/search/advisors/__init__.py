"""Advisors guide the search by information other than the metric: failed trials, memory use and priors.

Begin with ``advisor``.
"""
