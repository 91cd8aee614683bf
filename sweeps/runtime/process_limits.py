"""Limits of this process (``ulimit``) under which Ray on this machine waits forever for its first workers, fails to
start, or aborts this process."""

from __future__ import annotations

import os
import resource

from sweeps.errors import UserError
from sweeps.runtime.node_resources import memory_of_node

ADDRESSES = 4 * 2**30
"""Bytes of addresses that a process of Ray needs besides the file of its objects, which it maps."""
PROCESSES = 200
"""Number of processes and threads of a cluster with one worker."""
FEW_PROCESSES = 1024
"""Limit of processes and threads below which several workers, or the user's other processes, may end Ray."""


def check_limits() -> None:
    """Check the limits.

    Raises:
        UserError: One is too low.
    """
    addresses, file = _limit(resource.RLIMIT_AS), _limit(resource.RLIMIT_FSIZE)
    objects = 0 if addresses is None and file is None else memory_of_node()[1]
    processes = _processes()
    if addresses is not None and addresses < objects + ADDRESSES:
        raise UserError(
            f"ulimit -v: a process may use {_gib(addresses)} of addresses, and one of Ray's needs "
            f"{_gib(objects + ADDRESSES)} here; raise it, as in `ulimit -v unlimited`"
        )
    if file is not None and file < objects:
        raise UserError(
            f"ulimit -f: a file may have {_gib(file)}, and that of Ray's objects has {_gib(objects)} here; raise it, "
            "as in `ulimit -f unlimited`"
        )
    if processes is not None and processes <= PROCESSES:
        raise UserError(
            f"ulimit -u: a user may have {processes} processes and threads, and Ray needs more than {PROCESSES}; "
            "raise it, as in `ulimit -u 4096`"
        )


def few_processes() -> str:
    """Return a note about a low limit of processes, a likely reason for the end of a process of Ray; else nothing."""
    processes = _processes()
    if processes is None or processes >= FEW_PROCESSES:
        return ""
    return f" (ulimit -u: a user may have {processes} processes and threads; raise it, as in `ulimit -u 4096`)"


def _processes() -> int | None:
    return _limit(resource.RLIMIT_NPROC) if os.geteuid() != 0 else None  # which root may exceed


def _limit(number: int) -> int | None:
    """Return a limit; None if there is none."""
    soft, _ = resource.getrlimit(number)
    return None if soft == resource.RLIM_INFINITY else soft


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
