"""Consoles that print text without interpreting markup, and plain tables."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from sweeps.texts.printable import without_controls

PIPE_WIDTH = 200
"""Width of a table when the output is not a terminal."""


class _PlainConsole(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render without control characters, which text of users and programs may contain, and with ? for characters
        that the terminal's encoding lacks."""
        encoding = getattr(self.file, "encoding", None) or "utf-8"
        for segment in super().render(renderable, options):
            if segment.control or (segment.text.isascii() and segment.text.isprintable()):
                yield segment
            else:
                text = without_controls(segment.text).encode(encoding, "replace").decode(encoding)
                yield Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """End a command whose output is no longer read, as with `| head`; if only progress output is lost, continue
        silently."""
        if self.file is sys.__stdout__:
            raise BrokenPipeError  # for the command, which ends with the status that it has set
        self.quiet = True
        with Path(os.devnull).open("w") as nowhere:  # for text that is flushed at exit or printed by libraries
            os.dup2(nowhere.fileno(), self.file.fileno())


def plain_console(**options: Any) -> Console:
    """Console that prints ``[lightning]`` and ``:warning:`` literally, since text comes from users and their YAML.

    Styles are set with ``Text``, or as an argument of ``print`` and ``add_column``.
    """
    # In a notebook rich would show HTML instead of printing to the file that it was given.
    return _PlainConsole(markup=False, emoji=False, force_jupyter=False, **options)


def printed_text(show: Callable[[Console], object]) -> str:
    """Return what a function prints to a console that is not a terminal, for a client of the service."""
    console = plain_console(file=io.StringIO(), width=PIPE_WIDTH)
    with console.capture() as printed:
        show(console)
    return printed.get()


class _PlainTable(Table):
    """Table whose columns are never truncated, however narrow the terminal."""

    def __init__(self, whole: Collection[str]):
        super().__init__(box=None, pad_edge=False, header_style="dim")
        self._whole = whole

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*cells, **options)
        for column, cell in zip(self.columns, cells, strict=False):
            if column.header in self._whole:
                column.min_width = max(column.min_width or 0, cell_len(str(cell)))


def plain_table(*columns: str, right: Collection[str] = (), whole: Collection[str] = (), **options: Any) -> Table:
    """Table without lines, with dim heads.

    Args:
        columns: Heads of the columns.
        right: Those whose cells are aligned to the right.
        whole: Those whose cells are never cut, such as names that a person copies into a command.
        options: Options of every column, such as ``overflow``.
    """
    table = _PlainTable(whole)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", **options)
    return table


def print_lines(console: Console, *lines: str) -> None:
    """Print lines as they are. The terminal breaks long lines, so that commands can be copied whole."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_facts(facts: Iterable[tuple[str, str]], console: Console) -> None:
    """Print a line for each fact. The terminal breaks long lines, so that addresses can be copied whole."""
    facts = list(facts)
    width = max((cell_len(label) for label, _ in facts), default=0)
    for label, text in facts:
        console.print(Text.assemble((set_cell_size(label, width), "dim"), f"  {text}"), soft_wrap=True)
