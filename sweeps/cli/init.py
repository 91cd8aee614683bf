"""The verb that begins a project: ``init``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from sweeps.cli.app import stdout, verb
from sweeps.cli.output import say
from sweeps.errors import UserError
from sweeps.scaffold.kinds import KINDS, find_kind
from sweeps.scaffold.new_files import write_new_files
from sweeps.scaffold.project import CONF_FOLDER, project_files, project_name

LISTED_KINDS = "; ".join(f"{kind.name}, {kind.title}" for kind in KINDS.values())


@verb("init")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--kind", metavar="KIND", help=f"What is trained: {LISTED_KINDS}.")
@click.option("--name", metavar="S", help="Name of the config; default: the folder's.")
def init(folder: Path, kind: str | None, name: str | None, config_dirs: tuple[Path, ...]) -> None:
    """Begin a project of your own: a module, a config and a test, which run at once.

    Asks what is trained unless --kind says it. No file is overwritten.
    """
    chosen = find_kind(kind if kind is not None else _ask_for_kind())
    name = project_name(folder, name)
    _write(folder, project_files(chosen, name))
    _say_next(folder, name, CONF_FOLDER)


def _ask_for_kind() -> str:
    """
    Raises:
        UserError: There is no terminal to ask on.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(f"say what is trained with --kind, since there is no terminal to ask on: {LISTED_KINDS}")
    kinds = list(KINDS.values())
    for number, kind in enumerate(kinds, start=1):
        say(f"{number:2} {kind.title} ({kind.name})")
    names = {kind.name: kind.name for kind in kinds} | {str(number): kind.name for number, kind in enumerate(kinds, 1)}
    answer: str = click.prompt(
        "What is trained?", default="1", type=click.Choice(list(names)), show_choices=False, err=True
    )
    return names[answer]


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for path in write_new_files(folder, texts):
        say(f"wrote {path}")


def _say_next(folder: Path, name: str, conf_folder: str) -> None:
    """Print the commands that check the sweep and run it."""
    command = f"python -m sweeps run conf={name} --config-dir {conf_folder}"
    step_in = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say("next: print the plan, then run the sweep")
    for line in (f"{step_in}{command} --dry-run", command):
        stdout.print(line, markup=False, highlight=False, soft_wrap=True)
