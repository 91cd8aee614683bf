"""The search space: distributions over dotted config paths, constraints between them, and a sweep's initial points.

Begin with ``space``.
"""
