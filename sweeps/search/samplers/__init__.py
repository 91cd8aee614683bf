"""Samplers: Optuna's by config, and ours beside them. Begin with ``build``."""
