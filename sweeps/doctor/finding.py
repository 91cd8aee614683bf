"""Result of one check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """Verdict of one check, with its reason and its fix."""

    check: str
    """Name of the check: ``packages``, ``disk``, ``clock``."""
    verdict: Verdict
    """``failed``: sweeps would fail or lose data; ``warning``: they would be slower, or may fail later."""
    where: str
    """Node, by host name and address; empty if the finding concerns the whole cluster."""
    found: str
    """Observed state, with numbers."""
    fix: str = ""
    """Advice; empty if no action is needed."""
