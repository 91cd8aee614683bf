"""Standard input, output and errors of a process that was started without some of them, as with ``>&-``."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Open ``/dev/null`` in place of each closed standard stream. Otherwise one of the sweep's files would get the
    stream's number, and what libraries print would be written into that file."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115 - it gets the lowest free number
            os.set_inheritable(stream.fileno(), True)  # noqa: FBT003 - it takes no keyword
            setattr(sys, name, stream)
