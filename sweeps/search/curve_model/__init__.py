"""Gaussian process of learning curves: predicts the value of each configuration at the last rung from all curves so
far.

It is the autoregressive model for several fidelities of Kennedy and O'Hagan (2000,
https://doi.org/10.1093/biomet/87.1.1): the function of each rung is that of the rung before, times a slope, and what
this rung adds::

    f_0(x) = g_0(x)        f_r(x) = slope_r * f_{r-1}(x) + g_r(x)        value = f_r(x) + noise_r

Each ``g_r`` is a Gaussian process over configurations (Matérn 5/2, with a length scale for each parameter), plus a
constant and a part that each trial has for itself. The slopes, the added functions of later rungs, and the noise
express how well early values predict late ones; all of them are fitted to the trials of the search (maximum a
posteriori).

Optuna's Gaussian process has no rungs, and takes a second for a suggestion after some tens of trials
(docs/search_quality.md). Here a scheduler asks at each report, so this is written with numpy and scipy.
"""
