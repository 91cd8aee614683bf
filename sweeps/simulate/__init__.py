"""Simulated searches: searcher, sampler, scheduler and stop rules of a sweep, with recorded learning curves instead of
training.

Begin with ``simulation``, the loop; ``recorded_table`` reads recorded curves, and ``surrogate`` answers points between
them. ``replay`` makes the recorded decisions of a sweep again, and ``why`` says their reasons.
"""
