"""User modules that are imported before configs are read, to register resolvers of OmegaConf and configs in Hydra's
``ConfigStore``. Only the environment can name them: a config from elsewhere must not run code."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from sweeps.errors import UserError

CONFIG_MODULES = "SWEEPS_CONFIG_MODULES"
"""Environment variable with the names of the modules, separated by commas."""


def import_config_modules() -> None:
    """Import the modules that the environment variable names.

    Raises:
        UserError: A module cannot be imported.
    """
    for name in filter(None, (each.strip() for each in os.environ.get(CONFIG_MODULES, "").split(","))):
        if name in sys.modules:
            continue
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise UserError(f"{CONFIG_MODULES}={name}: cannot be imported ({type(error).__name__}: {error})") from error
