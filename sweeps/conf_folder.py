"""The folder of the configs that come with Sweeps."""

from __future__ import annotations

from pathlib import Path


def conf_folder() -> Path:
    """Return the ``conf/`` of Sweeps: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"
