"""Tracking URIs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote


def sqlite_path(uri: str) -> Path | None:
    """The file behind ``sqlite:///...``; nothing for every other store."""
    scheme, separator, rest = uri.partition(":///")
    if not separator or scheme.partition("+")[0] != "sqlite":
        return None
    name = unquote(rest.partition("?")[0])
    return None if name in {"", ":memory:"} else Path(name)


def as_uri(place: str) -> str:
    """A folder as ``file:///...``; what is a URI already, as it is."""
    return place if "://" in place else Path(place).absolute().as_uri()


def absolute(uri: str) -> str:
    """The URI by which the store is found from another working folder, too: ``sqlite:///mlflow.db`` names a file in
    the present one."""
    path = sqlite_path(uri)
    return uri if path is None else f"sqlite:///{path.absolute()}"
