"""Freezes all imported objects for the garbage collector; the forkserver of plans imports this module last.

In each child a collection would search half a million objects, and copy the memory that the child shares with the
forkserver: half of the time of a plan.
"""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
