"""The private working folder of a trial that runs user code, and the folder in which its sweep was started."""

from __future__ import annotations

import ast
import errno
import itertools
import linecache
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweeps_train.config.command import PROGRAM_FOLDER

START_FOLDER = "SWEEPS_START_FOLDER"
"""Environment variable of a trial: the folder in which its sweep was started."""
_NOT_FOUND = ("FileNotFoundError", "No such file or directory", "not found", "does not exist")
_IN_PROGRAM_FOLDER = re.compile(rf".*/trials/[^/]+/{PROGRAM_FOLDER}/")
_QUOTED = re.compile(r"""(['"])([^'"]+)\1""")
_OF_NETWORK = re.compile("connect|time(d |-)?out|temporarily|unavailable|too many requests", re.IGNORECASE)
"""Pattern of the texts of network errors, after which an attempt is repeated."""


def start_folder() -> Path:
    """Return the folder in which the sweep was started, to which relative data paths in user code refer. Outside of a
    trial it is the working folder, so that the code also runs without Sweeps.

    Returns:
        An absolute path.

    Raises:
        FileNotFoundError: The working folder outside of a trial has been removed.

    Example:
        >>> start_folder() / "data" / "train.csv" == Path.cwd() / "data" / "train.csv"
        True
    """
    return Path(os.environ.get(START_FOLDER) or Path.cwd())


def own_folder(checkpoint_folder: str | Path) -> Path:
    """Create a trial's own folder beside its checkpoints, and return the folder's absolute path."""
    folder = (Path(checkpoint_folder) / PROGRAM_FOLDER).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def working_in(folder: Path) -> Iterator[Path]:
    """Make a folder the working folder during a block; yield the previous one, which ``start_folder`` returns
    meanwhile. The caller must restore the environment.

    Raises:
        OSError: A file was not found in the block; if it exists in the start folder, the message says so.
    """
    start = start_folder()
    os.environ[START_FOLDER] = str(start)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield start
    except OSError as error:
        # Libraries raise plain ones; subclasses are about something else, such as the end of a connection.
        is_about_files = isinstance(error, FileNotFoundError) or type(error) is OSError
        is_about_files = is_about_files and error.errno in (None, errno.ENOENT)
        if not is_about_files:
            raise
        named = _only_in(start, folder, _named_by(error))
        calls = () if isinstance(error.filename, str) else reversed([*_arguments(error)])
        missing = named or _only_in(start, folder, calls)
        if missing is None:
            raise
        use = f"use sweeps_train.start_folder() / {missing!r}"
        # The error may be about something else if it does not name what is missing.
        first_line = "" if named else next(iter(str(error).splitlines()), "")
        more = f"; {first_line}" if first_line and not _OF_NETWORK.search(first_line) else ""
        reason = os.strerror(errno.ENOENT)
        raise FileNotFoundError(
            f"{reason}; the trial works in {folder}, and {missing} is in {start}: {use}{more}"
        ) from error
    finally:
        os.chdir(before)


def _named_by(error: OSError) -> Iterator[str]:
    """Yield candidates for the missing path in an error; libraries word such errors differently."""
    if isinstance(error.filename, str):
        yield error.filename
        return
    yield from _paths_in(str(error))
    yield str(error)  # as pandas does


def _paths_in(text: str) -> Iterator[str]:
    """Yield what may be a path in a message: quoted texts, and words with a slash or a dot."""
    for _, name in _QUOTED.findall(text):
        yield name
    for word in text.split():
        name = word.rstrip(".,:;)")
        if "/" in name or "." in name:
            yield name


def _arguments(error: OSError) -> Iterator[str]:
    """Yield the first text among the arguments without a keyword of each call in an error's traceback outside of
    libraries, outermost first."""
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        position = next(itertools.islice(code.co_positions(), at.tb_lasti // 2, None))
        if "site-packages" not in code.co_filename and (call := _call(code.co_filename, *position)) is not None:
            parts = (part for argument in call.args for part in ast.walk(argument))
            texts = (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))
            yield from itertools.islice(texts, 1)
        at = at.tb_next


def _call(file: str, first: int | None, last: int | None, begin: int | None, end: int | None) -> ast.Call | None:
    """Return the call at a position in a file of source code; None if there is something else."""
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(file, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]  # before the beginning, which may be in the same line
    lines[0] = lines[0][begin:]
    try:
        found = ast.parse(b"".join(lines).decode(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return found if isinstance(found, ast.Call) else None


def _only_in(start: Path, folder: Path, names: Iterable[str]) -> str | None:
    """Return the first name that exists in the start folder but not in the trial's own folder, relative to the start
    folder."""
    for name in names:
        relative = name.removeprefix(f"{folder}{os.sep}")
        is_relative = relative and not Path(relative).is_absolute()
        if is_relative and _exists(start / relative) and not _exists(folder / relative):
            return relative
    return None


def as_seen_from_anywhere(value: Any, start: Path) -> Any:
    """Return a config value in which names of files in the start folder are replaced by absolute paths."""
    match value:
        case str():
            may_be = ("/" in value or "." in value) and "\0" not in value and not Path(value).is_absolute()
            is_file = may_be and os.path.isfile(start / value)  # noqa: PTH113 - as in _exists
            return str(start / value) if is_file else value
        case dict():
            return {key: as_seen_from_anywhere(each, start) for key, each in value.items()}
        case list():
            return [as_seen_from_anywhere(each, start) for each in value]
    return value


def hint(lines: Iterable[str], start: Path, as_argument: str = "{start_folder}") -> str:
    """Return advice if the last lines of a program name a path that it did not find in the trial's own folder, but that
    exists in the start folder; otherwise an empty string. ``as_argument`` is the text for the start folder in the
    program's arguments."""
    for line in lines:
        for path in _paths_in(line) if any(each in line for each in _NOT_FOUND) else ():
            name = _IN_PROGRAM_FOLDER.sub("", path)
            if not Path(name).is_absolute() and _exists(start / name):
                return (
                    f"{name} is in {start}, and the program works in the trial's own folder: give it "
                    f"{as_argument}/{name} or {START_FOLDER}, or set task.working_folder=."
                )
    return ""


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - unlike Path's method, False for what is too long or no path at all
