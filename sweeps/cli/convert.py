"""The verb ``convert``, which converts the search of another tool."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from sweeps.cli.app import PATH, stdout, verb
from sweeps.cli.output import say
from sweeps.report.plain_console import print_lines


@verb("convert")
@click.argument("source", metavar="FILE|MODULE:NAME")
@click.option("--output", metavar="DIR", type=PATH, help="Write DIR/NAME.yaml instead of stdout.")
@click.option("--name", metavar="S", help="Name of the config; default: the name in the file.")
@click.option("--tune-config", metavar="MODULE:NAME", help="With a param_space of Ray Tune: its TuneConfig.")
def convert(source: str, output: Path | None, name: str | None, tune_config: str | None) -> None:
    """Convert a search: a W&B sweep, Hydra's Optuna sweeper, or a param_space of Ray Tune.

    What cannot be carried over is listed on stderr, and in the config as comments. No file is overwritten.
    """
    from sweeps.convert.conf_file import conf_text
    from sweeps.convert.convert import read_search
    from sweeps.scaffold.new_files import write_new_files
    from sweeps.scaffold.project import project_name

    conversion = read_search(source, tune_config)
    if name is not None:
        conversion.name = project_name(Path(), name)
    folder = "conf" if output is None else str(output)
    command = f"python -m sweeps run conf={conversion.name} --config-dir {shlex.quote(folder)}"
    text = conf_text(conversion, source, command)
    for note in conversion.notes:
        say(f"note: {note}")
    if output is None:
        sys.stdout.write(text)
        return
    for path in write_new_files(output, {f"{conversion.name}.yaml": text}):
        say(f"wrote {path}")
    say("next: print the plan")
    missing = "" if conversion.missing is None else f" {conversion.missing}"
    print_lines(stdout, f"{command}{missing} --dry-run")
