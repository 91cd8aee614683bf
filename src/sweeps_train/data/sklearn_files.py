"""Files of data that scikit-learn ships, found without importing it."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def files_of_sklearn(pattern: str) -> list[Path]:
    """Return the paths of scikit-learn's files that match a pattern; none if scikit-learn is not installed."""
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        return []
    return sorted((Path(spec.origin).parent / "datasets" / "data").glob(pattern))
