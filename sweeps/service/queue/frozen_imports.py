"""Imported last by the forkserver of plans, and by nothing else: leaves what is imported out of garbage collections.

In each child a collection would search half a million objects, and copy the memory that the child shares with the
forkserver: half of the time of a plan.
"""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
