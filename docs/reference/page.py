"""Markdown of a generated page: headings with fixed anchors, tables, and text from docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence


def heading(level: int, text: str, anchor: str) -> str:
    """Return a heading whose address stays the same when its text changes."""
    return f"{'#' * level} {text} {{#{slug(anchor)}}}\n"


def slug(text: str) -> str:
    """Return the anchor for a name: ``--config-dir`` becomes ``config-dir``.

    >>> slug("search.sampler.tpe.startup_trials")
    'search-sampler-tpe-startup-trials'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; line breaks and bars in its cells are escaped."""
    lines = [_row(columns), _row(["---"] * len(columns)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """Return text as code within a line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"


def prose(text: str | None) -> str:
    """Return a docstring as Markdown: without indentation, and with its code in single backticks."""
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc(text or "")).strip()


def sentence(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join(prose(text).partition("\n\n")[0].split())
