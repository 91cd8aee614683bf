"""The Python API: the functions that ``import sweeps`` offers. Begin with ``run``.

Each function imports what it needs when it is called, so that importing these modules is cheap.
"""
