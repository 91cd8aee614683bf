"""URIs of tracking stores and checkpoints."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a URI ``sqlite:///...``; None for every other store."""
    scheme, separator, rest = uri.partition(":///")
    if not separator or scheme.partition("+")[0] != "sqlite":
        return None
    name = unquote(rest.partition("?")[0])
    return None if name in {"", ":memory:"} else Path(name)


def as_uri(path: str) -> str:
    """Return a folder's URI ``file:///...``; a URI is returned unchanged."""
    return path if "://" in path else Path(path).absolute().as_uri()


def local_path(uri: str) -> Path | None:
    """Return the path of a URI ``file:///...``, or of a path; None for other URIs."""
    address = urlsplit(uri)
    if address.scheme == "":
        return Path(uri)
    return Path(unquote(address.path)) if address.scheme == "file" else None


def absolute(uri: str) -> str:
    """Return a tracking URI that is valid in every working folder, unlike ``sqlite:///mlflow.db``."""
    path = sqlite_path(uri)
    return uri if path is None else f"sqlite:///{path.absolute()}"
