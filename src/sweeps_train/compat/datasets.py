"""Private names of Hugging Face ``datasets``."""

from __future__ import annotations

from typing import Any


def fingerprint(data_set: Any) -> str:
    """Private names of Hugging Face ``datasets``."""
    identity: str = data_set._fingerprint
    return identity
