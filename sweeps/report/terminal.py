"""Consoles that print text without reading markup in it, and plain tables."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


class _PlainConsole(Console):
    def on_broken_pipe(self) -> None:
        """End a command whose result nobody reads any more, as `| head` does; progress and messages alone go unseen."""
        if self.file is sys.__stdout__:
            super().on_broken_pipe()
        self.quiet = True
        with Path(os.devnull).open("w") as nowhere:  # what is flushed at exit, and what libraries print
            os.dup2(nowhere.fileno(), self.file.fileno())


def plain_console(**options: Any) -> Console:
    """Console that prints ``[lightning]`` and ``:warning:`` as they are, since texts come from users and their YAML.

    Styles are set with ``Text``, or as an argument of ``print`` and ``add_column``.
    """
    # In a notebook rich would show HTML instead of printing to the file that it was given.
    return _PlainConsole(markup=False, emoji=False, force_jupyter=False, **options)


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
