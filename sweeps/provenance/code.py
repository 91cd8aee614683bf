"""The git checkout that a sweep is started in: its commit and the changes since."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sweeps.provenance.redaction import redacted, redacted_source

LONGEST_DIFF = 2_000_000
"""Maximum number of characters of changes that are recorded."""
LARGEST_NEW_FILE = 200_000
"""Maximum bytes of an untracked file among the changes."""
MOST_NEW_FILES = 500
SOURCES = (".py", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh", ".ipynb")
"""Suffixes of untracked files among the changes: source code, not data and outputs."""
NOT_FOR_RECORDS = (":(exclude,glob)**/.env*", ":(exclude,glob)**/*.pem", ":(exclude,glob)**/*.key")
AS_PATCH = (
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
)
"""Options with which ``git diff`` writes a patch for ``git apply``, whatever the user's settings are."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkout:
    """The state of a git checkout."""

    commit: str | None
    branch: str
    remote: str
    """Address of the remote ``origin``, without its password."""
    diff: str
    """Changes since the commit, with new source files; empty if there are none, and a comment if git cannot tell them.
    ``git apply`` accepts them unless they are truncated, contained secrets, which are hidden, or are of binary files,
    whose contents are left out."""

    @property
    def is_cut(self) -> bool:
        """Whether the diff was too long and its end is missing."""
        return len(self.diff) >= LONGEST_DIFF


class _GitFailed(Exception):
    """A git command has failed, or git is not installed."""


def git_commit() -> str | None:
    """Return the commit of the checkout that contains the working folder; None if there is none."""
    return _git("rev-parse", "HEAD") or None


def checkout() -> Checkout | None:
    """Return the state of the checkout that contains the working folder; None if there is none."""
    try:
        root = _output("rev-parse", "--show-toplevel").strip()
    except _GitFailed as error:
        if (fix := re.search(r"git config --global --add safe\.directory .*", str(error))) is not None:
            logger.warning(
                "the commit is not recorded, since the checkout belongs to another user; to trust it: %s", fix[0]
            )
        return None
    commit = git_commit()
    return Checkout(
        commit=commit,
        branch=_git("rev-parse", "--abbrev-ref", "HEAD"),
        remote=redacted(_git("remote", "get-url", "origin")),
        diff=redacted_source(_changes(root))[:LONGEST_DIFF] if commit else "",
    )


def _changes(root: str) -> str:
    # New files are added to a copy of the index, since the user's own must not change.
    index = Path(root, _git("rev-parse", "--git-path", "index", folder=root))
    with TemporaryDirectory() as folder:
        copy = Path(folder, "index")
        if index.is_file():
            shutil.copy2(index, copy)  # with its time, by which git finds files that may have changed
        environment = {**os.environ, "GIT_INDEX_FILE": str(copy)}
        if new := _new_sources(root):
            _git("add", "--intent-to-add", "--", *new, folder=root, environment=environment)
        try:
            return _output("diff", *AS_PATCH, "HEAD", "--", ".", *NOT_FOR_RECORDS, folder=root, environment=environment)
        except _GitFailed as error:
            return f"# Unknown changes: git diff failed ({' '.join(str(error).split())})\n"


def _new_sources(root: str) -> list[str]:
    listed = _git("ls-files", "--others", "--exclude-standard", "-z", folder=root).split("\0")
    return [
        name
        for name in listed
        if name.endswith(SOURCES)
        and not Path(name).name.startswith(".env")
        and (file := Path(root, name)).is_file()
        and file.stat().st_size <= LARGEST_NEW_FILE
    ][:MOST_NEW_FILES]


def _git(*arguments: str, folder: str | None = None, environment: dict[str, str] | None = None) -> str:
    """Return the output of a git command without its last line end; empty if it fails or git is not installed."""
    with suppress(_GitFailed):
        return _output(*arguments, folder=folder, environment=environment).removesuffix("\n")
    return ""


def _output(*arguments: str, folder: str | None = None, environment: dict[str, str] | None = None) -> str:
    """Return the output of a git command.

    Raises:
        _GitFailed: It fails, or git is not installed.
    """
    try:
        answer = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _GitFailed(str(error)) from error
    if answer.returncode != 0:
        raise _GitFailed(answer.stderr.decode(errors="replace"))
    return answer.stdout.decode(errors="replace")  # with the line ends of Windows, which a patch must have
