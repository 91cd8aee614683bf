"""Trials from which a search learns, of earlier sweeps and of other programs, converted to points of its space.

Begin with ``earlier_trials``. A file for each kind of source reads what other programs made; ``parameter_names`` finds
the config paths of its parameters, and ``points`` converts its trials.
"""
