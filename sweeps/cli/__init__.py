"""The command line: thin, and it imports late, so that help and mistakes are answered at once."""

from __future__ import annotations

import sys

import click
from rich.traceback import Traceback

# In the order of the verbs in the help.
# isort: off
from sweeps.cli import running, looking, using, browsing  # noqa: F401

# isort: on
from sweeps.cli.app import INTERRUPTED, app, stderr
from sweeps.errors import SweepsError

__all__ = ["app", "main"]


def main() -> None:
    """The command line's one entry: errors become a message and an exit status here, and nowhere else."""
    debug = "--debug" in sys.argv
    try:
        status = app(prog_name="python -m sweeps", standalone_mode=False)
    except SweepsError as error:
        if debug:
            stderr.print(Traceback())
        stderr.print(f"sweeps: {error}", markup=False, highlight=False, soft_wrap=True)
        status = error.exit_status
    except click.ClickException as error:  # an unknown verb or option
        stderr.print(f"sweeps: {error.format_message()}", markup=False, highlight=False, soft_wrap=True)
        stderr.print("Try: python -m sweeps --help", markup=False, highlight=False)
        status = 2
    except (KeyboardInterrupt, click.Abort):
        stderr.print("sweeps: interrupted", markup=False)
        status = INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        sys.stdout = None
        status = 0
    sys.exit(status or 0)
