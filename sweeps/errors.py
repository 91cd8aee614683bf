"""Exceptions of Sweeps. All can be pickled, since Ray sends them between processes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ParamSpec

Arguments = ParamSpec("Arguments")


class SweepsError(Exception):
    """Base class of all exceptions of Sweeps; the command line prints the message without a traceback."""

    exit_status = 1
    """Exit status of the command line."""


class UserError(SweepsError):
    """A mistake in a request, found before anything started. The message names the key, the value and the fix."""

    exit_status = 2
    """Exit status of the command line."""


class ConfigError(UserError):
    """Mistakes in the config. The message has a line for each."""


def raise_mistakes(mistakes: Iterable[str]) -> None:
    """Raise one ``ConfigError`` with all mistakes, each once and on a line of its own; do nothing if there are none."""
    if lines := list(dict.fromkeys(mistakes)):
        raise ConfigError("\n".join(lines))


def mistakes_of(check: Callable[Arguments, object], *args: Arguments.args, **kwargs: Arguments.kwargs) -> list[str]:
    """Return the lines of the ``ConfigError`` that a check raises; none if it raises none."""
    try:
        check(*args, **kwargs)
    except ConfigError as error:
        return str(error).split("\n")
    return []


class ConstraintViolated(ConfigError):
    """Sampled values that violate ``search.constraints``; the search samples others."""


class AlreadyDone(ConfigError):
    """A request for changes that were already made and completed."""


class UnknownName(UserError):
    """A config, group option, key, verb or sweep that does not exist."""


class Conflict(UserError):
    """A change to something that another user has changed in the meantime."""


class TimeLimitExceeded(UserError):
    """A request that was not completed within its time limit."""


class TrackingUnreachable(UserError):
    """The tracking server does not answer."""


class ArtifactsUnreachable(UserError):
    """The store of MLflow's artifacts does not answer this machine, which may lack its credentials or its library."""


class RayNotStarted(UserError):
    """Ray failed to start on this machine, which may be too busy."""


class ResultUnreachable(TrackingUnreachable):
    """The tracking server has received the whole record of an ended sweep, and then stopped answering."""

    exit_status = 1


class DoesNotFit(UserError):
    """One trial needs more resources than the cluster has."""

    def __init__(self, reason: str, larger: str | None = None) -> None:
        """
        Args:
            reason: What does not fit, and what to change in the config.
            larger: Another fix: how to get a larger cluster.
        """
        super().__init__(reason if larger is None else f"{reason}, or {larger}")
        self.reason, self.larger = reason, larger


class TrialFailed(SweepsError):
    """A trial's training ended with an error."""

    def __init__(self, message: str, error: object = None) -> None:
        """
        Args:
            message: The reason in one line.
            error: The ``WorkerError`` that caused it, if a worker reported one.
        """
        super().__init__(message, error)
        self.message, self.error = message, error

    def __str__(self) -> str:
        return self.message


class StorageFailed(SweepsError):
    """The sweep's folder cannot be written: its disk is full, read-only, broken or gone. All files are complete."""

    def __init__(self, folder: Path, trouble: str = "") -> None:
        """
        Args:
            folder: The sweep's folder.
            trouble: Text of the error, if another disk may be the full one.
        """
        super().__init__(folder, trouble)
        self.folder, self.trouble = folder, trouble

    def __str__(self) -> str:
        sweep = self.folder.name
        if self.trouble and not any(text in self.trouble for text in map(os.strerror, FULL)):
            return (
                f"{self.folder} cannot be written ({self.trouble}); fix that, and continue with "
                f"`python -m sweeps resume {sweep}`"
            )
        disk = f"the disk of {self.folder}{f', or another one ({self.trouble}),' if self.trouble else ''}"
        return (
            f"{disk} is full, or your quota there is used up; free some space, and continue with "
            f"`python -m sweeps resume {sweep}`"
        )


class DriverFailed(SweepsError):
    """An unexpected error has ended a sweep's driver; its trials can continue."""

    def __init__(self, sweep: str, error: str, traceback_file: str) -> None:
        """
        Args:
            sweep: Name of the sweep.
            error: Type and first line of the error.
            traceback_file: File with its traceback, in the sweep's folder.
        """
        super().__init__(sweep, error, traceback_file)
        self.sweep, self.error, self.traceback_file = sweep, error, traceback_file

    def __str__(self) -> str:
        return (
            f"unexpected {self.error}; the traceback is in {self.traceback_file}, and "
            f"`python -m sweeps resume {self.sweep}` continues the trials that ran"
        )


class ClusterLost(SweepsError):
    """Ray is gone, and with it the processes of a sweep's trials, which can continue later."""

    def __init__(self, sweep: str, reason: str) -> None:
        """
        Args:
            sweep: Name of the sweep.
            reason: Observed failure.
        """
        super().__init__(sweep, reason)
        self.sweep, self.reason = sweep, reason

    def __str__(self) -> str:
        return (
            f"Ray is gone: {self.reason}; what was reported is kept, and `python -m sweeps resume {self.sweep}` "
            "continues the trials"
        )


class Undelivered(SweepsError):
    """A sweep has ended, but the tracking server has not received all of its record."""


FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and of an exhausted quota."""
LEAST_FREE_BYTES, LEAST_FREE_SHARE = 1 << 30, 0.05
"""Free space below which a disk counts as nearly full, in bytes and as a share of the disk. A checkpoint that did not
fit has usually been removed when the disk is asked."""
_NAMES = ["EROFS", "EIO", "ENODEV", "EUCLEAN", "ESTALE", "ENOTCONN", "EKEYEXPIRED"]
_LOST = [getattr(errno, name) for name in _NAMES if hasattr(errno, name)]  # EUCLEAN, EKEYEXPIRED are of Linux alone
"""Error numbers of a file system that has become read-only, a failing disk, a missing disk, a damaged file system, a
missing network drive, a mount whose program has ended, and a user whose ticket has expired."""


def is_storage_failure(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, comes from a full, read-only, broken or missing disk."""
    while error is not None:
        if isinstance(error, StorageFailed) or (isinstance(error, OSError) and error.errno in (*FULL, *_LOST)):
            return True
        error = error.__cause__ or error.__context__
    return False


def mentions_storage_failure(text: str | None, folder: Path) -> bool:
    """Whether an error text from another process reports a full or failed disk of the sweep's folder. Other failures
    may concern a user's data, or another disk.

    Args:
        text: The error, as Python words it: with its file if the error is about opening one, else without.
        folder: The sweep's folder.
    """
    if text is None:
        return False
    if os.strerror(errno.EDQUOT) in text:  # the free space of a disk says nothing about a user's quota
        return True
    if os.strerror(errno.ENOSPC) in text:
        return str(folder) in text or _is_nearly_full(folder)
    return any(os.strerror(number) in text for number in _LOST) and str(folder) in text


def _is_nearly_full(folder: Path) -> bool:
    """Whether a folder's disk may lack the space for a checkpoint; true if the space is unknown."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return True
    return disk.free < max(LEAST_FREE_BYTES, LEAST_FREE_SHARE * disk.total)
