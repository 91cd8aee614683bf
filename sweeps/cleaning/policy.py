"""Conditions for removing checkpoints and runs: by count, age and size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from pydantic import ByteSize

from sweeps.errors import ConfigError

AGES = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@dataclass(frozen=True)
class Policy:
    """Conditions for removing a trial's checkpoints or run; a trial must meet all of them."""

    keep_best: int = 1
    """Number of the best trials of each sweep that are kept."""
    keep_last: int = 0
    """Number of the newest sweeps that are kept."""
    older_than_s: float | None = None
    """Minimum seconds since the end of a sweep."""
    max_size: int | None = None
    """Maximum bytes of all checkpoints: only as many as necessary are removed, those of the oldest sweeps first."""
    runs: bool = False
    """Whether trials' MLflow runs are removed as well."""
    unfinished: bool = False
    """Whether to clean interrupted and stopped sweeps as well, which then cannot be resumed, and trials that a spent
    budget has stopped."""


class CleanOptions(TypedDict):
    """Options of ``clean`` as typed, for the conditions of ``Policy``."""

    older_than: str | None
    """Minimum age, such as ``30d``."""
    keep_last: int | None
    max_size: str | None
    """Maximum size, such as ``50GiB``."""
    keep_best: int
    runs: bool
    unfinished: bool


def read_policy(names: Sequence[str], **options: Unpack[CleanOptions]) -> Policy:
    """Return the policy for the sweeps' names and the options of ``clean``.

    Raises:
        ConfigError: An age or a size cannot be read, or no option limits what is removed.
    """
    older_than, keep_last, max_size = options["older_than"], options["keep_last"], options["max_size"]
    if not names and older_than is None and keep_last is None and max_size is None:
        raise ConfigError("name what to remove: sweeps, --older-than 30d, --keep-last 10 or --max-size 50GiB")
    return Policy(
        keep_best=options["keep_best"],
        keep_last=keep_last or 0,
        older_than_s=None if older_than is None else parse_age(older_than),
        max_size=None if max_size is None else parse_size(max_size),
        runs=options["runs"],
        unfinished=options["unfinished"],
    )


def parse_age(text: str, option: str = "--older-than") -> float:
    """Return the seconds of ``30d``, ``12h``, ``2w`` or ``90m``.

    Args:
        text: The age.
        option: Name of the option, for the message.

    Raises:
        ConfigError: The text has another form.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", str(text).strip())
    if found is None:
        raise ConfigError(f"{option}={text}: must be a number followed by m, h, d or w, such as 30d")
    return float(found[1]) * AGES[found[2]]


def parse_size(text: str) -> int:
    """Return the bytes of ``50GiB``, ``500MB`` or ``1000000B``.

    Raises:
        ConfigError: The text has another form.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", str(text).strip())
    if found is None or found[2].upper() not in SIZES:
        raise ConfigError(f"--max-size={text}: must be a number followed by B, MB, GB, MiB, GiB or TiB, such as 50GiB")
    return int(float(found[1]) * SIZES[found[2].upper()])


def describe_size(size: int) -> str:
    """Describe a size: ``1.5 GiB``."""
    return ByteSize(size).human_readable(separator=" ")
