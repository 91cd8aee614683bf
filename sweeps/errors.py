"""What Sweeps raises. Each error pickles, since Ray ships them between processes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SweepsError(Exception):
    """Base of all our errors; the command line prints its message without a traceback."""

    exit_status = 1


class UserError(SweepsError):
    """A mistake in what was asked, found before anything started: names the key, the value and the fix."""

    exit_status = 2


class ConfigError(UserError):
    """The composed config cannot be run. Holds every mistake that was found, one a line."""


class Forbidden(ConfigError):
    """A point of the space that ``search.constraints`` leave out: another is asked for."""


class UnknownName(UserError):
    """A config, group option, key, verb or sweep that does not exist."""


class TrackingUnreachable(UserError):
    """The tracking server does not answer."""


class DoesNotFit(UserError):
    """One trial needs more than the cluster could ever give."""


class TrialFailed(SweepsError):
    """A trial's training ended with an error."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """``"; did you mean a, b?"``, or the whole choice when nothing is near and it is short, or nothing."""
    known = sorted(set(known))
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.6)
    if close:
        return f"; did you mean {', '.join(close)}?"
    if known and len(known) <= 12:
        return f"; there is {', '.join(known)}"
    return ""
