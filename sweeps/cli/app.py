"""The click group of all verbs, the options that several verbs share, and the consoles."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sweeps.report.plain_console import PIPE_WIDTH, plain_console
from sweeps.texts.suggestions import did_you_mean

PROGRAM = "python -m sweeps"
PATH = click.Path(path_type=Path)


class _Verbs(click.Group):
    """Group that lists its verbs in the order of their definition, and suggests the nearest name for an unknown one."""

    group_class = type  # subgroups, such as `token`, are of this class, too

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            ctx.fail(f"there is no verb {args[0]!r}{did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


class _Verb(click.Command):
    """Command that explains ``--trial`` when the trial was typed as a further word: ``logs SWEEP 1``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            takes_trial = any(each.name == "trial" for each in self.params)
            if takes_trial and error.message.startswith("Got unexpected extra argument"):
                ctx.fail(f"{error.message}; a trial is given as --trial ID")
            raise


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import sweeps

        click.echo(f"sweeps {sweeps.__version__}")
        context.exit()


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version, help="Print the version."
)
def app() -> None:
    """Hyperparameter search for distributed training, on Ray Tune, Ray Train, Optuna and MLflow."""


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
tracking_uri = click.option(
    "--tracking-uri",
    metavar="URI",
    help="MLflow store or server; default: MLFLOW_TRACKING_URI, else mlflow.db in the working folder.",
)
server = click.option(
    "--server",
    metavar="URL",
    envvar="SWEEPS_SERVER",
    show_envvar=True,
    help="Use the service at this address, with the token in SWEEPS_TOKEN or in the file SWEEPS_TOKEN_FILE.",
)
of_service = click.argument("tokens", nargs=-1, metavar="[service=NAME] [database=URL]")
trial = click.option("--trial", metavar="ID", help="Id of the trial; default: the best.")
moved_to = click.option("--folder", metavar="DIR", type=PATH, help="The sweep's folder, if it was moved.")


def verb(name: str, group: click.Group = app) -> Callable[[Callable[..., None]], click.Command]:
    """Decorator that makes a function a verb, with the options that every verb has: ``--debug``, and ``--config-dir``,
    which the function gets if it has an argument ``config_dirs``.

    Args:
        name: Name of the verb.
        group: Group of the verb, such as ``token`` for ``token create``.
    """

    def decorate(function: Callable[..., None]) -> click.Command:
        reads_configs = "config_dirs" in inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*, config_dirs: tuple[Path, ...], **options: Any) -> None:
            function(**options, **({"config_dirs": config_dirs} if reads_configs else {}))

        directories = click.option(
            "--config-dir",
            "config_dirs",
            metavar="DIR",
            multiple=True,
            type=PATH,
            help="Folder of your own configs, which take precedence. Repeatable.",
        )
        debug = click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
        return group.command(name, cls=_Verb)(directories(debug(call)))

    return decorate


def _open_closed_streams() -> None:
    """Open ``/dev/null`` in place of each standard stream that is closed, as with ``>&-``. Otherwise one of the sweep's
    files would get the stream's number, and what libraries print would be written into that file."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - it gets the lowest free number
            os.set_inheritable(stream.fileno(), True)  # noqa: FBT003 - it takes no keyword
            setattr(sys, name, stream)


_open_closed_streams()
stderr = plain_console(stderr=True)
stdout = plain_console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
