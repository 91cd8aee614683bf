"""From ``conf/`` and the command line to one typed config: ``compose_sweep`` in ``sweep.py`` is the way in.

Only the composition itself is offered here, since trials need it, and none of Hydra.
"""

from sweeps.compose.composition import Composition, Variant

__all__ = ["Composition", "Variant"]
