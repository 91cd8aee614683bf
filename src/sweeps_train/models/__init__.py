"""Models that a trial trains, and the small base model that ships with Sweeps. ``causal_lm.py`` loads language models,
``image.py`` builds classifiers."""
