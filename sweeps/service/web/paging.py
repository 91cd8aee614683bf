"""Pagination of long tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

ROWS = 50
"""Rows of a page."""


@dataclass(frozen=True)
class Page(Generic[T]):
    rows: Sequence[T]
    page: int
    """Number of this page, from 1."""
    pages: int
    count: int
    """Number of rows of the whole table."""


def page_of(rows: Sequence[T], page: int, size: int = ROWS) -> Page[T]:
    """Page with this number, or the nearest existing one."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return Page(rows[(page - 1) * size : page * size], page, pages, len(rows))
