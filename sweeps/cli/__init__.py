"""The command line: thin, and it imports late, so that help and mistakes are answered at once."""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Sequence

import click
from rich.traceback import Traceback

# In the order of the verbs in the help.
# isort: off
from sweeps.cli import (  # noqa: F401
    run,
    read,
    logs,
    lifecycle,
    ui,
    init,
    convert,
    serve,
    schedule,
    tokens,
)

# isort: on
from sweeps.cli.app import INTERRUPTED, MISTAKE, NO_SUCCESS, PROGRAM, app, stderr
from sweeps.errors import SweepsError
from sweeps.suggestions import did_you_mean

__all__ = ["app", "main"]


def main() -> None:
    """The command line's one entry."""
    status, _ = answered(sys.argv[1:])
    sys.exit(status)


def answered(arguments: Sequence[str], *, is_log: bool = False) -> tuple[int, str | None]:
    """Do what is asked; the exit status, and what was said if it could not be done. Errors become a message and a
    status here, and nowhere else.

    Args:
        arguments: As typed after ``python -m sweeps``.
        is_log: stderr is a log file, which keeps tracebacks of unexpected errors.
    """
    debug = "--debug" in arguments
    try:
        status = app([*arguments], prog_name=PROGRAM, standalone_mode=False)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None), None
    except (KeyboardInterrupt, click.Abort):
        stderr.print("sweeps: interrupted")
        return INTERRUPTED, None
    except BrokenPipeError:  # `| head` has read enough
        sys.stdout = None
        return 0, None
    except Exception as error:  # noqa: BLE001 - also what nobody foresaw is told in one line
        if debug:
            stderr.print(Traceback())
        elif is_log and not isinstance(error, SweepsError):
            traceback.print_exc()
        return _told(error)
    return status or 0, None


def _told(error: Exception) -> tuple[int, str]:
    """Print what went wrong; the exit status, and what was said."""
    status, usage = NO_SUCCESS, False
    if isinstance(error, SweepsError):
        status, message = error.exit_status, str(error)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        stderr.print(error.format_message(), highlight=False, soft_wrap=True)
        return MISTAKE, error.format_message()
    elif isinstance(error, click.ClickException):  # an unknown verb or option
        status, message, usage = MISTAKE, _with_nearest(error), True
    else:
        message = _unexpected(error)
    stderr.print(f"sweeps: {message}", highlight=False, soft_wrap=True)
    if usage:
        _say_usage(error.ctx if isinstance(error, click.UsageError) else None)
    return status, message


def _with_nearest(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [name for parameter in error.ctx.command.params for name in parameter.opts if name.startswith("--")]
        return f"there is no option {error.option_name}{did_you_mean(error.option_name, known, listed=0)}"
    return error.format_message()


def _say_usage(context: click.Context | None) -> None:
    """Print the usage of the verb that was typed, or of the whole command line."""
    if context is not None:
        stderr.print(context.get_usage(), highlight=False, soft_wrap=True)
    stderr.print(f"Try: {PROGRAM if context is None else context.command_path} --help", highlight=False, soft_wrap=True)


def _unexpected(error: Exception) -> str:
    """One line on an error that nobody foresaw, after its traceback was written to a file."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="sweeps-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError:  # no room: then it is worth more than a tidy terminal
        return f"unexpected {text}"
    first_line = str(error).strip().partition("\n")[0]
    return f"unexpected {type(error).__name__}: {first_line}; the traceback is in {file.name}, and --debug shows it"
