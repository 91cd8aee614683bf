"""Composition of ``conf/`` and the command line's overrides into one typed config. Begin with
``hydra_composition.compose_sweep``.

This module exports only the result, which trials need on workers, without importing Hydra.
"""

from sweeps.compose.composition import Composition, Variant

__all__ = ["Composition", "Variant"]
