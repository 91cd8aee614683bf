"""The command line: thin, and it imports late, so that help and mistakes are answered at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.traceback import Traceback

# In the order of the verbs in the help.
# isort: off
from sweeps.cli import running, looking, using, browsing, serving, scheduling, tokens  # noqa: F401

# isort: on
from sweeps.cli.app import INTERRUPTED, app, stderr
from sweeps.errors import SweepsError

__all__ = ["app", "main"]


def main() -> None:
    """The command line's one entry."""
    status, _ = answered(sys.argv[1:])
    sys.exit(status)


def answered(arguments: Sequence[str]) -> tuple[int, str | None]:
    """Do what is asked; the exit status, and what was said if it could not be done. Errors become a message and a
    status here, and nowhere else."""
    debug = "--debug" in arguments
    try:
        status = app([*arguments], prog_name="python -m sweeps", standalone_mode=False)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None), None
    except SweepsError as error:
        if debug:
            stderr.print(Traceback())
        stderr.print(f"sweeps: {error}", markup=False, highlight=False, soft_wrap=True)
        return error.exit_status, str(error)
    except click.ClickException as error:  # an unknown verb or option
        stderr.print(f"sweeps: {error.format_message()}", markup=False, highlight=False, soft_wrap=True)
        stderr.print("Try: python -m sweeps --help", markup=False, highlight=False)
        return 2, error.format_message()
    except (KeyboardInterrupt, click.Abort):
        stderr.print("sweeps: interrupted", markup=False)
        return INTERRUPTED, None
    except BrokenPipeError:  # `| head` has read enough
        sys.stdout = None
        return 0, None
    return status or 0, None
