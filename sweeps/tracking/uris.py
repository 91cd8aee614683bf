"""URIs of tracking stores and checkpoints."""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.metadata import entry_points, version
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sweeps.errors import UserError

DEFAULT = "tracking.uri=sqlite:///mlflow.db"
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql")
OF_FILES = f"is a folder of files, which MLflow no longer supports as a store; use a database, as in {DEFAULT}"


def default_uri() -> str:
    """Return the tracking URI in ``MLFLOW_TRACKING_URI``, otherwise that of the SQLite file in the working folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def why_no_store(uri: str) -> str | None:
    """Return the reason why MLflow cannot use a URI as tracking store, without importing MLflow; None if it can."""
    whole = "databricks" if uri.startswith("databricks") else uri.partition(":")[0].lower() if ":" in uri else ""
    scheme = whole.partition("+")[0]
    if scheme == "sqlite" and sqlite_path(uri) is None:
        return f"is not an SQLite file, and a database in memory would be lost; use a file, as in {DEFAULT}"
    if scheme in (*SCHEMES, "databricks", "uc"):
        return None
    if scheme in ("", "file"):
        is_allowed = os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() in ("true", "1")
        return None if is_allowed else OF_FILES
    if any(each.name in (scheme, whole) for each in entry_points(group="mlflow.tracking_store")):
        return None
    return f"is not a tracking store: there is no scheme {scheme}; use {', '.join(SCHEMES)}, as in {DEFAULT}"


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a URI ``sqlite:///...``; None for every other store."""
    scheme, separator, rest = uri.partition(":///")
    if not separator or scheme.partition("+")[0] != "sqlite":
        return None
    path = rest.partition("?")[0]
    name = unquote(path) if decodes_paths() else path
    return None if name in {"", ":memory:"} else Path(name)


def sqlite_uri(path: Path) -> str:
    """Return the URI of an SQLite file, with special characters in its path escaped.

    Raises:
        UserError: The installed SQLAlchemy cannot express the path in a URI.
    """
    text = str(path.absolute())
    if not decodes_paths() and "?" in text:
        raise UserError(
            f"{text}: SQLAlchemy {version('sqlalchemy')} cannot open a file with ? in its path; rename the folder"
        )
    if decodes_paths():
        text = re.sub(r"%(?=[0-9A-Fa-f]{2})", "%25", text).replace("?", "%3F")
    return f"sqlite:///{text}"


@cache
def decodes_paths() -> bool:
    """Whether the installed SQLAlchemy decodes ``%20`` in the path of a URI as a space, as it does from 2.1 on."""
    major, minor, *_ = version("sqlalchemy").split(".")
    return (int(major), int(minor)) >= (2, 1)


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
    return uri if path is None else sqlite_uri(path)
