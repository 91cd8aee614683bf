"""Private names of Hugging Face ``datasets``."""

from __future__ import annotations

from typing import Any


def fingerprint(data_set: Any) -> str:
    """Identity of a data set's contents; the library's own cache is keyed by it."""
    identity: str = data_set._fingerprint
    return identity
