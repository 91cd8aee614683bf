"""The verb that begins a project: ``init``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from sweeps.cli.app import PATH, stdout, verb
from sweeps.cli.output import say
from sweeps.errors import UserError
from sweeps.report.plain_console import print_lines
from sweeps.scaffold.kinds import KINDS, find_kind
from sweeps.scaffold.new_files import write_new_files
from sweeps.scaffold.project import CONF_FOLDER, project_files, project_name
from sweeps.scaffold.script_options import read_script
from sweeps.scaffold.script_project import (
    HYDRA_FOLDER,
    example_value,
    proposed_space,
    required_values,
    script_project,
)

LISTED_KINDS = "; ".join(f"{kind.name}, {kind.title}" for kind in KINDS.values())


@verb("init")
@click.argument("folder", metavar="[DIR]", default=".", type=PATH)
@click.option("--kind", metavar="KIND", help=f"What is trained: {LISTED_KINDS}.")
@click.option(
    "--from",
    "script",
    metavar="FILE.py",
    type=PATH,
    help="Read the options of this script (argparse, dataclasses, Hydra), and propose a space for them.",
)
@click.option("--name", metavar="S", help="Name of the config; default: the folder's, or with --from the script's.")
def init(folder: Path, kind: str | None, script: Path | None, name: str | None) -> None:
    """Begin a project of your own: a module, a config and a test, which run at once.

    Asks what is trained, unless --kind or --from say it. No file is overwritten.
    """
    if script is not None:
        if kind is not None:
            raise click.UsageError(
                "--kind and --from exclude each other: --from makes a sweep over a script that exists"
            )
        _from_script(script, folder, name)
        return
    chosen = find_kind(kind if kind is not None else _ask_for_kind())
    name = project_name(folder, name)
    _write(folder, project_files(chosen, name))
    _say_next(folder, name, CONF_FOLDER)


def _from_script(script: Path, folder: Path, name: str | None) -> None:
    """Write a sweep over the options of a script, and print what is left to do."""
    read = read_script(script)
    name = project_name(Path(script.stem), name)
    conf_folder = HYDRA_FOLDER if read.style == "hydra" else CONF_FOLDER
    _write(folder, script_project(script, read, folder, name, conf_folder))
    space = proposed_space(read)
    say(f"searched: {', '.join(space) or 'nothing; write a space into the config'}")
    for note in read.notes:
        say(f"note: {note}")
    if not read.metrics:
        unchanged = "set task.read" if read.is_program else "choose task=command with task.read"
        say(
            f'note: {script} prints no metric as JSON; let it print(json.dumps({{"loss": loss}})) at each evaluation, '
            f"or {unchanged} for what it prints now (docs/any_program.md)"
        )
    required = [f"task.arguments.{option.name}={example_value(option)}" for option in required_values(read)]
    _say_next(folder, name, conf_folder, required)


def _ask_for_kind() -> str:
    """Ask the user for the kind of project.

    Raises:
        UserError: No terminal is available to ask.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(f"give --kind, since there is no terminal to ask on: {LISTED_KINDS}")
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


def _say_next(folder: Path, name: str, conf_folder: str, values: Sequence[str] = ()) -> None:
    """Print the commands that check the sweep and run it."""
    command = shlex.join(["python", "-m", "sweeps", "run", f"conf={name}", "--config-dir", conf_folder, *values])
    step_in = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say("next: print the plan, then run the sweep")
    print_lines(stdout, f"{step_in}{command} --dry-run", command)
