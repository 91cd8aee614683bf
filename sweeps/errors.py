"""What Sweeps raises. Each error pickles, since Ray ships them between processes."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class SweepsError(Exception):
    """Base of all our errors; the command line prints its message without a traceback."""

    exit_status = 1


class UserError(SweepsError):
    """A mistake in what was asked, found before anything started: names the key, the value and the fix."""

    exit_status = 2


class ConfigError(UserError):
    """The composed config cannot be run. Holds every mistake that was found, one a line."""


class ConstraintViolated(ConfigError):
    """A point of the space that ``search.constraints`` leave out: another is asked for."""


class UnknownName(UserError):
    """A config, group option, key, verb or sweep that does not exist."""


class TimeLimitExceeded(UserError):
    """A request is not done within its time limit."""


class TrackingUnreachable(UserError):
    """The tracking server does not answer."""


class DoesNotFit(UserError):
    """One trial needs more than the cluster could ever give."""


class TrialFailed(SweepsError):
    """A trial's training ended with an error."""

    def __init__(self, message: str, error: object = None) -> None:
        """
        Args:
            message: One line.
            error: The ``WorkerError`` that caused it, if a worker has sent one.
        """
        super().__init__(message, error)
        self.message, self.error = message, error

    def __str__(self) -> str:
        return self.message


class StorageFull(SweepsError):
    """A disk, or a quota, is full: what was written is whole, and the sweep can go on when there is room."""

    def __init__(self, folder: Path, trouble: str = "") -> None:
        super().__init__(folder, trouble)
        self.folder, self.trouble = folder, trouble

    def __str__(self) -> str:
        return (
            f"the disk is full that holds {self.folder}{f', or another one: {self.trouble}' if self.trouble else ''}; "
            f"make room, and go on with `python -m sweeps resume {self.folder.name}`"
        )


class Undelivered(SweepsError):
    """A sweep came to its end, and the tracking server has not taken all of its record."""


_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that a disk or a quota is full."""
    while error is not None:
        if isinstance(error, StorageFull) or (isinstance(error, OSError) and error.errno in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def mentions_full_disk(text: str | None) -> bool:
    """The same of an error of which only the text has come from another process."""
    return text is not None and any(os.strerror(number) in text for number in _FULL)
