"""The built documentation, which the service serves under ``/docs``."""

from __future__ import annotations

from pathlib import Path

from sweeps.errors import ConfigError

ADDRESS = "/docs"
INSIDE_THE_PACKAGE = Path(__file__).parents[2] / "docs"
"""Folder that ``make docs`` writes; a wheel that is built afterwards contains it."""
FIRST_PAGE = "index.html"


def documentation(docs_dir: str | None) -> Path | None:
    """Return the folder of the built documentation: the one of the service's config or the one inside the package; None
    if it was not built.

    Raises:
        ConfigError: The folder in the config does not contain built documentation.
    """
    if docs_dir is None:
        return INSIDE_THE_PACKAGE if (INSIDE_THE_PACKAGE / FIRST_PAGE).is_file() else None
    folder = Path(docs_dir).expanduser().absolute()
    if not (folder / FIRST_PAGE).is_file():
        raise ConfigError(f"docs_dir={docs_dir}: has no {FIRST_PAGE}; `make docs` in a checkout of Sweeps builds it")
    return folder
