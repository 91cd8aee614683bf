"""One option of a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MISSING = object()
"""Default of an option that has none, or one that cannot be read from the source."""
A_FLAG = "a flag, which takes no value"
"""Reason why a search cannot set an option that is given without a value."""


@dataclass(frozen=True)
class Option:
    """One option of a script."""

    name: str
    """Name without dashes; a nested one has dots."""
    type: str | None = None
    """``float``, ``int``, ``str`` or ``bool``; None if the source does not show it."""
    default: Any = MISSING
    choices: tuple[Any, ...] = ()
    required: bool = False
    excluded: str | None = None
    """Reason why a search cannot set it; None if it can."""

    @property
    def kind(self) -> str | None:
        """The option's type, otherwise that of its default."""
        if self.type is not None or self.default is MISSING or self.default is None:
            return self.type
        return type(self.default).__name__
