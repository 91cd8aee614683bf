"""Consoles that print text without reading markup in it, and plain tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table


def plain_console(**options: Any) -> Console:
    """Console that prints ``[lightning]`` and ``:warning:`` as they are, since texts come from users and their YAML.

    Styles are set with ``Text``, or as an argument of ``print`` and ``add_column``.
    """
    # In a notebook rich would show HTML instead of printing to the file that it was given.
    return Console(markup=False, emoji=False, force_jupyter=False, **options)


def plain_table(*columns: str, right: Collection[str] = (), **options: Any) -> Table:
    """Table without lines, with dim heads.

    Args:
        columns: Heads of the columns.
        right: Those whose cells are aligned to the right.
        options: Options of every column, such as ``overflow``.
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", **options)
    return table
