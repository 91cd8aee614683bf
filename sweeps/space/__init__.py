"""The search space: distributions over dotted config paths, constraints between them, and the points that a search
begins with.
"""
