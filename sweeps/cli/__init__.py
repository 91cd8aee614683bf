"""The command line: ``main`` runs a verb. Verbs import their modules late, so that help and errors are quick."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

import click

# In the order of the verbs in the help.
# isort: off
from sweeps.cli import (  # noqa: F401
    run,
    submit,
    read,
    logs,
    lifecycle,
    ui,
    init,
    convert,
    doctor,
    serve,
    schedule,
    tokens,
    backup,
    completion,
)

# isort: on
from sweeps.cli.app import PROGRAM, app, stderr
from sweeps.cli.exit_status import INTERRUPTED, MISTAKE, NO_SUCCESS, TRY_AGAIN, exit_status, exits_with
from sweeps.compat.python_exit import end_process
from sweeps.errors import FULL, ArtifactsUnreachable, RayNotStarted, SweepsError, TrackingUnreachable
from sweeps.folders.shadowing_file import describe_shadowing, shadowing_file
from sweeps.texts.suggestions import did_you_mean

__all__ = ["app", "main"]

NO_HOME = "Could not determine home directory"
"""Text of Python's error for a user without a home folder, which Ray and MLflow raise."""
OWN_HOME = (
    "HOME: is not set, and this user has no home folder, which Ray and MLflow need; set it to a folder that can be "
    "written, as in HOME=/tmp"
)
OTHER_HOME = "~NAME: there is no user of this name, or none with a home folder; write the whole path"
OUT_OF_REACH = (errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)
"""Error numbers of a path in a folder that this user may not enter, of one that is too long, and of a circle of
links."""


def main() -> None:
    """Entry point of the command line, which ends the process; ``run_command`` returns."""
    if (asked := os.environ.get(completion.VARIABLE)) is not None:
        sys.exit(completion.answer(app, asked))
    status, _ = run_command(sys.argv[1:])
    end_process(status)


def run_command(arguments: Sequence[str], *, is_log: bool = False) -> tuple[int, str | None]:
    """Run one command. This is the only place that turns an error into a message and an exit status.

    Args:
        arguments: Arguments as typed after ``python -m sweeps``.
        is_log: Whether this is a background process: its log gets tracebacks of unexpected errors, and its exit status
            tells whether a repetition may succeed.

    Returns:
        The exit status, and the error's message if there was one.
    """
    debug = "--debug" in arguments
    try:
        _run(arguments)
    except (KeyboardInterrupt, click.Abort):
        stderr.print("\nsweeps: interrupted")  # below the terminal's ^C
        return INTERRUPTED, None
    except BrokenPipeError:  # the reader of a pipe, such as `| head`, has ended
        sys.stdout = None
    except Exception as error:  # noqa: BLE001 - an unexpected error becomes one line, too
        if debug:
            from rich.traceback import Traceback  # with pygments, which takes a while

            stderr.print(Traceback())
        elif is_log and not isinstance(error, SweepsError):
            traceback.print_exc()
        status, message = _print_error(error)
        may_succeed = is_log and isinstance(error, TrackingUnreachable | ArtifactsUnreachable | RayNotStarted)
        return TRY_AGAIN if may_succeed else status, message
    return exit_status(), None


def _run(arguments: Sequence[str]) -> None:
    """Run one command, and write all that it has printed."""
    exits_with(0)
    try:
        with app.make_context(PROGRAM, [*arguments]) as context:  # `app()` would exit with 1 at a closed pipe
            app.invoke(context)
    except click.exceptions.Exit as left:  # after --help
        exits_with(left.exit_code)
    except SystemExit as left:
        exits_with(left.code if isinstance(left.code, int) else int(left.code is not None))
    if sys.stdout is not None:
        sys.stdout.flush()


def _print_error(error: Exception) -> tuple[int, str]:
    """Print an error; return the exit status and the message."""
    status, usage = NO_SUCCESS, False
    if (mistake := _mistake(error)) is not None:
        status, message = MISTAKE, mistake
    elif isinstance(error, SweepsError):
        status, message = error.exit_status, str(error)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        stderr.print(error.format_message(), highlight=False, soft_wrap=True)
        return MISTAKE, error.format_message()
    elif isinstance(error, click.ClickException):  # an unknown verb or option
        status, message, usage = MISTAKE, _with_nearest(error), True
    elif isinstance(error, OSError) and error.errno in FULL:
        where = error.filename or "the disk of the output or of temporary files (TMPDIR)"
        message = f"{where}: {error.strerror}; free some, or use another disk"
    else:
        message = _unexpected(error)
    stderr.print(f"sweeps: {message}", highlight=False, soft_wrap=True)
    if usage:
        _print_usage(error.ctx if isinstance(error, click.UsageError) else None)
    return status, message


def _mistake(error: Exception) -> str | None:
    """Return the message of an error of Python or a library that tells a mistake of the user; None for any other."""
    message: str | None = None
    if NO_HOME in str(error) and os.path.expanduser("~") == "~":  # noqa: PTH111 - that of Path raises
        message = OWN_HOME
    elif isinstance(error, SweepsError | click.ClickException):
        pass  # they tell what happened themselves
    elif isinstance(error, RuntimeError) and NO_HOME in str(error):
        message = OTHER_HOME
    elif (file := shadowing_file(error)) is not None:
        message = f"{describe_shadowing(file)} ({error})"
    elif isinstance(error, UnicodeEncodeError) and (odd := [each for each in sys.argv if error.object in each]):
        message = (
            f"{odd[0]!a}: is not text in {sys.getfilesystemencoding()}, the encoding of this terminal; write it in "
            "that, or set PYTHONUTF8=1 if it is in UTF-8"
        )
    elif isinstance(error, OSError) and error.errno in OUT_OF_REACH and error.filename and not _left_driver(error):
        message = f"{error.filename}: {error.strerror}; use another path"
    return message


def _left_driver(error: Exception) -> bool:
    """Whether an error came from a running driver, and not from a mistake on the command line."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals["__name__"] == "sweeps.driver.run" for frame in frames)


def _with_nearest(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        from sweeps.compose.hydra_settings import OPTIONS  # with the config's schemas, which take a while

        if (instead := OPTIONS.get(error.option_name)) is not None:
            return f"{error.option_name} is an option of Hydra's own program; {instead}"
        known = [name for parameter in error.ctx.command.params for name in parameter.opts if name.startswith("--")]
        hint = "" if error.option_name == "--conf" else did_you_mean(error.option_name, known, listed=0)
        if not hint and "key=value" in error.ctx.command.get_usage(error.ctx):
            hint = f"; for a key of the config write {error.option_name.lstrip('-')}=VALUE"
        return f"there is no option {error.option_name}{hint}"
    return error.format_message()


def _print_usage(context: click.Context | None) -> None:
    """Print the usage of the verb that was typed, or of the whole command line."""
    if context is not None:
        stderr.print(context.get_usage(), highlight=False, soft_wrap=True)
    stderr.print(f"Try: {PROGRAM if context is None else context.command_path} --help", highlight=False, soft_wrap=True)


def _unexpected(error: Exception) -> str:
    """Write the traceback of an unexpected error to a file; return one line that names it."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="sweeps-error-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError:  # the disk is full: print the traceback instead
        return f"unexpected {text}"
    first_line = str(error).strip().partition("\n")[0]
    return f"unexpected {type(error).__name__}: {first_line}; the traceback is in {file.name}, and --debug shows it"
