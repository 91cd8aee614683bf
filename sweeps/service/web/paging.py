"""Long tables, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

ROWS = 50
"""Of a page."""


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some rows of a table."""

    rows: Sequence[T]
    page: int
    """Its number, from 1."""
    pages: int
    count: int
    """Rows of the whole table."""


def page_of(rows: Sequence[T], page: int, size: int = ROWS) -> Page[T]:
    """One page; the nearest there is, where the number is none."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return Page(rows[(page - 1) * size : page * size], page, pages, len(rows))
