"""Kinds of things outside of the training that a config value can access: code, files, addresses, other sweeps.

A service that runs other people's configs checks every value by the ``Reach`` of its field. A field whose values are
numbers, fixed words or sections needs none; any other field declares one, even if it is ``NOTHING``.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Annotated


class Reach(Enum):
    """Metadata of a config field, which says what its values access: ``path: Annotated[str, Reach.SOURCE]``."""

    NOTHING = auto()
    """Accesses nothing outside of the training."""
    TARGET = auto()
    """Import path of code that is run."""
    REMOTE_CODE = auto()
    """Switch that lets code from the Hugging Face hub run."""
    COMMAND = auto()
    """Part of a program's command line, environment, files or folders."""
    SOURCE = auto()
    """File, folder, glob, address or name on the hub that is read."""
    WORD = auto()
    """Word known to a library; a value with a slash would be fetched from the hub and run."""
    ARGUMENTS = auto()
    """Arguments of a target, any of which may be a path or an address."""
    ENVIRONMENT = auto()
    """Names of environment variables that workers get."""
    STORE = auto()
    """Address of the tracking server."""
    CLUSTER = auto()
    """Address of the Ray cluster."""
    LAUNCH = auto()
    """Setting of the job that ``submit`` asks a cluster for."""
    FOLDER = auto()
    """Folder that sweeps are written to."""
    CONSTRAINTS = auto()
    """Expressions over the config."""
    SWEEPS = auto()
    """Names of other sweeps."""
    TRIALS = auto()
    """File, database or server from which trials of other programs are read."""
    POINTS = auto()
    """Values by dotted path."""
    SPACE = auto()
    """Distributions by dotted path."""


Flag = Annotated[bool, Reach.NOTHING]
Text = Annotated[str, Reach.NOTHING]
Import = Annotated[str, Reach.TARGET]
