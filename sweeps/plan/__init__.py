"""The plan of a sweep: everything that is known and checked before it starts, and the ways to make one: new, resumed,
extended, retrained or exported. Begin with ``plan``.
"""
