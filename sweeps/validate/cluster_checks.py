"""Notes on the section ``cluster``."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sweeps.config import SweepConfig


def cluster_notes(config: SweepConfig) -> Iterator[str]:
    """Yield notes on cluster settings that are valid but may be unintended."""
    missing = [name for name in config.cluster.env if not name.endswith("*") and name not in os.environ]
    if missing and config.cluster.address != "local":
        yield f"cluster.env: {', '.join(missing)}: not set here, so the workers keep what their nodes have"
