"""Tables of schedules, firings and nights for the terminal, made from the ``--json`` documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from sweeps.report.plain_console import plain_table
from sweeps.service.schedules.schedule_file import difference

Document = Mapping[str, Any]
STYLES = {"first": "green", "promoted": "green", "regression": "red", "failed": "red"}
"""Styles of the verdicts on nights."""


def print_schedules(schedules: Sequence[Document], console: Console) -> None:
    """Print a table of schedules from the documents of ``ScheduleState.as_json``."""
    if not schedules:
        console.print("There are no schedules. Write one: schedule/NAME.yaml in a folder given with --config-dir")
        return
    columns = ("schedule", "cron", "zone", "sweep", "last firing", "outcome", "next firing")
    table = plain_table(*columns, whole=("schedule",))
    for each in schedules:
        last = each["last"]
        table.add_row(
            each["name"],
            each["cron"],
            each["timezone"],
            " ".join([each["conf"], *each["overrides"]]),
            "" if last is None else _shown(last["due"]),
            "" if last is None else _outcome(last),
            f"paused; `schedule resume {each['name']}` lets it fire"
            if not each["enabled"]
            else "none"
            if each["next"] is None
            else _shown(each["next"]["starts"]),
        )
    console.print(table)


def print_coming(firings: Sequence[Document], disabled: Sequence[str], console: Console) -> None:
    """Print a table of coming firings from the documents of ``Coming.as_json``; ``disabled`` schedules have none."""
    if not firings:
        console.print("There are no coming firings.")
    for name in disabled:
        console.print(f"{name} is disabled. `python -m sweeps schedule resume {name}` enables it.")
    if firings:
        table = plain_table("schedule", "due", "starts", "ended by", whole=("schedule",))
        for each in firings:
            table.add_row(each["schedule"], _shown(each["due"]), _shown(each["starts"]), _shown(each["end_by"]))
        console.print(table)


def print_versions(name: str, versions: Sequence[Document], console: Console) -> None:
    """Print the saved versions of a schedule, newest first, each with its differences from the previous one."""
    if not versions:
        console.print(f"{name} is the operator's own file, and was never changed through the service.", markup=False)
    texts = [*(each["text"] for each in versions), None]
    for version, before in zip(versions, texts[1:], strict=True):
        when = datetime.fromtimestamp(version["time"]).astimezone().isoformat(" ", "seconds")
        who = f" by {version['user']}" if version["user"] else ""
        console.print(f"{version['number']}  {when}  {version['action']}{who}", markup=False, highlight=False)
        for line in difference(before, version["text"]):
            console.print(f"   {line}", markup=False, highlight=False, soft_wrap=True)


def print_nights(schedule: str, nights: Sequence[Document], console: Console) -> None:
    """Print a table of a schedule's nights, oldest first, from the documents of ``Night.as_json``."""
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
        table.add_row(
            f"{datetime.fromtimestamp(night['due'], UTC):%Y-%m-%d %H:%M}",
            night["sweep"],
            Text(night["verdict"], STYLES.get(night["verdict"], "")),
            *(_number(night[name]) for name in ("best", "champion", "noise")),
            night["version"] or "",
            night["reason"] or "",
        )
    console.print(table)


def _outcome(last: Document) -> str:
    if last["job"] is None:
        return f"{last['outcome']}: {last['reason']}"
    return f"{last['sweep']} ({last['state']})"


def _shown(time: str | None) -> str:
    """Return a time without its ``T`` and without zero seconds."""
    return "" if time is None else time.replace("T", " ").replace(":00+", "+").replace(":00-", "-")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
