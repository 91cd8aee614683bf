"""Reference of the command line: every verb, argument and option, from click."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from reference.page import code, heading, prose, slug, table
from sweeps.cli import app
from sweeps.cli.app import PROGRAM
from sweeps.cli.exit_status import INTERRUPTED, MISTAKE, NO_SUCCESS

EXIT_STATUSES = (
    ("0", "done"),
    (str(NO_SUCCESS), "the sweep ended with no successful trial"),
    (str(MISTAKE), "the request is wrong (config, option, unknown sweep); nothing was started"),
    (str(INTERRUPTED), "interrupted (Ctrl-C); trials have saved their state, and `resume` continues"),
)
SHARED = ("config_dirs", "debug", "help")
"""Options that every verb has, described once."""


def pages() -> dict[str, str]:
    """Return the page of all verbs."""
    commands = list(all_verbs())
    parts = [
        "# Verbs and options\n",
        f"`{PROGRAM} VERB` (installed: `sweeps VERB`). `--help` prints the same for one verb.\n",
        table(
            ("verb", "does"),
            [(f"[{code(name)}](#{slug(name)})", _summary(command)) for name, command in commands],
        ),
        heading(2, "Options of every verb", "options-of-every-verb"),
        _options([each for each in commands[0][1].params if each.name in SHARED]),
        "`-h`, `--help` prints the help, and `python -m sweeps --version` the version.\n",
        heading(2, "Exit statuses", "exit-statuses"),
        table(("status", "meaning"), EXIT_STATUSES),
    ]
    for name, command in commands:
        parts += _verb(name, command)
    return {"reference/verbs.md": "\n".join(parts)}


def all_verbs(group: click.Group | None = None, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield each verb with its full name, such as ``token create``."""
    for name, command in (group or app).commands.items():
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from all_verbs(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _verb(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"{PROGRAM} {name}")
    usage = " ".join(context.get_usage().removeprefix("Usage:").split())
    yield heading(2, code(name), name)
    yield f"```text\n{usage}\n```\n"
    yield _help(command) + "\n"
    own = [each for each in command.params if isinstance(each, click.Option) and each.name not in SHARED]
    if own:
        yield _options(own)


def _help(command: click.Command) -> str:
    """Return the help, whose commands stand as code."""
    text = prose(command.help).replace("\b\n", "")
    return re.sub(rf"(?<!`)({re.escape(PROGRAM)} [^\n]*?)(?=$|\n|\. )", r"`\1`", text)


def _summary(command: click.Command) -> str:
    return _help(command).partition("\n")[0].partition(": `")[0]


def _options(options: list[click.Parameter]) -> str:
    return table(("option", "meaning"), [_option(each) for each in options if isinstance(each, click.Option)])


def _option(option: click.Option) -> tuple[str, str]:
    context = click.Context(click.Command(""))
    names, text = option.get_help_record(context) or (", ".join(option.opts), option.help or "")
    return code(names), text
