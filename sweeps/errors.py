"""Exceptions of Sweeps. All can be pickled, since Ray sends them between processes."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class SweepsError(Exception):
    """Base class of all exceptions of Sweeps; the command line prints the message without a traceback."""

    exit_status = 1
    """Exit status of the command line."""


class UserError(SweepsError):
    """A mistake in a request, found before anything was started. The message names the key, the value and the fix."""

    exit_status = 2
    """Exit status of the command line."""


class ConfigError(UserError):
    """A mistake in the config. The message has a line for each mistake that was found."""


class ConstraintViolated(ConfigError):
    """Sampled values that violate ``search.constraints``; the search samples others."""


class UnknownName(UserError):
    """A config, group option, key, verb or sweep that does not exist."""


class Conflict(UserError):
    """A change to something that somebody else has changed meanwhile."""


class TimeLimitExceeded(UserError):
    """A request that was not completed within its time limit."""


class TrackingUnreachable(UserError):
    """The tracking server does not answer."""


class DoesNotFit(UserError):
    """One trial needs more resources than the cluster has."""


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


class StorageFull(SweepsError):
    """A disk or a quota is full. All files are complete, and the sweep can be resumed when there is space."""

    def __init__(self, folder: Path, trouble: str = "") -> None:
        """
        Args:
            folder: The sweep's folder.
            trouble: Text of the error, if another disk may be the full one.
        """
        super().__init__(folder, trouble)
        self.folder, self.trouble = folder, trouble

    def __str__(self) -> str:
        return (
            f"the disk is full that holds {self.folder}{f', or another one: {self.trouble}' if self.trouble else ''}; "
            f"make room, and go on with `python -m sweeps resume {self.folder.name}`"
        )


class Undelivered(SweepsError):
    """A sweep has ended, but the tracking server has not taken all of its record."""


_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error or one of its causes is a full disk or quota."""
    while error is not None:
        if isinstance(error, StorageFull) or (isinstance(error, OSError) and error.errno in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def mentions_full_disk(text: str | None) -> bool:
    """Whether the text of an error from another process is that of a full disk or quota."""
    return text is not None and any(os.strerror(number) in text for number in _FULL)
