"""Table of trials on a terminal, with as many parameters as fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from sweeps.report.plain_console import plain_table
from sweeps.tracking.mlflow_texts import parameter_names
from sweeps.tracking.values import short

GAP = 2
"""Spaces between two columns."""
LONGEST_CELL = 24

Cell = str | Text


def parameter_table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], params: Sequence[Mapping[str, Any]], width: int
) -> tuple[Table, Text | None]:
    """Table of trials with a column for each parameter that fits into the terminal, and a line that names the others.

    The first columns, whose cells are in ``rows``, are a trial's id and state, aligned to the left, then numbers.
    """
    table = plain_table()
    used = -GAP
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < 2 else "right", no_wrap=True)
        used += GAP + max(map(cell_len, [name, *(str(row[index]) for row in rows)]))
    names = parameter_names(params)
    texts = {path: [short(each[path])[:LONGEST_CELL] if path in each else "" for each in params] for path in names}
    shown: list[str] = []
    for path, name in names.items():
        used += GAP + max(map(cell_len, [name, *texts[path]]))
        if used > width:
            break
        shown.append(path)
        table.add_column(name, justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        table.add_row(*row, *(texts[path][index] for path in shown))
    hidden = list(names.values())[len(shown) :]
    text = f"no room for {', '.join(hidden)}: a wider terminal shows them" if hidden else ""
    return table, Text(text, "dim", no_wrap=True, overflow="ellipsis") if hidden else None
