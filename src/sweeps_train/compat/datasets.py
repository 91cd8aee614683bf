"""Private names of Hugging Face ``datasets``."""

from __future__ import annotations

from typing import Any


def fingerprint(data_set: Any) -> str:
    """Return the identity of a data set's contents; the library also uses it as the key of its own cache."""
    identity: str = data_set._fingerprint
    return identity
