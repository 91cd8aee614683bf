"""Sweeps that can be run and the options of every config group, with one line about each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweeps.compose.search_path import ConfSearchPath
from sweeps.errors import UnknownName
from sweeps.texts.suggestions import did_you_mean

Document = dict[str, dict[str, str]]
"""Group -> option -> its description. Configs of sweeps are in the group ``conf``."""


def choices_document(config_dirs: Sequence[Path], group: str | None, without: Collection[str] = ()) -> Document:
    """Options of one group, or of all groups except some with their subgroups. Users' folders of configs come before
    the built-in ones.

    Raises:
        UnknownName: There is no such group.
    """
    search_path = ConfSearchPath(config_dirs)
    groups = ["conf", *(each for each in search_path.groups() if each.partition("/")[0] not in without)]
    if group is not None and group not in groups:
        if group in search_path.confs():
            raise UnknownName(f"{group}: is a config to run, not a group: conf={group}; `conf conf` lists all of them")
        raise UnknownName(f"{group}: there is no such group{did_you_mean(group, groups)}")
    document: Document = {}
    for name in [group] if group is not None else groups:
        folder, options = ("", search_path.confs()) if name == "conf" else (f"{name}/", search_path.options(name))
        document[name] = {option: search_path.header(f"{folder}{option}") for option in options}
    return document


def print_choices(document: Document, console: Console) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for group, options in document.items():
        for option, header in options.items():
            table.add_row(Text.assemble((f"{group}=", "bold"), option), header)
        table.add_section()
    console.print(table)
