"""Result of one check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """What one check has found, and what to do about it."""

    check: str
    """Name of the check: ``packages``, ``disk``, ``clock``."""
    verdict: Verdict
    """``failed``: sweeps would fail or lose data; ``warning``: they would be slower, or may fail later."""
    where: str
    """Node, by host name and address; empty if it concerns all of the cluster."""
    found: str
    """The state, with its figures."""
    fix: str = ""
    """What to do about it; empty if nothing."""
