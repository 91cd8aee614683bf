"""Table of a schedule's nights for the terminal, from the documents of ``--json``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from sweeps.report.plain_console import plain_table

STYLES = {"first": "green", "promoted": "green", "regression": "red", "failed": "red"}


def print_nights(schedule: str, nights: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a table of nights.

    Args:
        schedule: Name of the schedule.
        nights: Documents of ``Night.as_json``, oldest first.
        console: Console to print to.
    """
    if not nights:
        console.print(
            f"{schedule} has had no nights; a service runs them if the schedule has a section `nights`.",
            highlight=False,
        )
        return
    metric = nights[-1]["metric"]
    columns = ("due (UTC)", "sweep", "verdict", metric, "champion", "noise", "version", "reason")
    table = plain_table(*columns, whole=("sweep",))
    for night in nights:
        verdict = night["verdict"]
        style = STYLES.get(verdict)
        table.add_row(
            time.strftime("%Y-%m-%d %H:%M", time.gmtime(night["due"])),
            night["sweep"],
            Text(verdict, style or ""),
            *(_number(night[name]) for name in ("best", "champion", "noise")),
            night["version"] or "",
            night["reason"] or "",
        )
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
