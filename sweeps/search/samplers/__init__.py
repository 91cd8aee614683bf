"""Samplers: Optuna's, built from their config, and those that Sweeps adds to them. Begin with ``build_sampler``."""
