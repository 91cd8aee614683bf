"""Simulated searches: the searcher, sampler, scheduler and stop rules of a sweep, with recorded learning curves instead
of training.

Begin with ``simulation``, the loop; ``recorded_table`` reads recorded curves, and ``surrogate`` predicts the curves of
other points. ``replay`` repeats the recorded decisions of a sweep, and ``why`` explains them.
"""
