"""Location of a sweep's folder: a path that all machines share, or a URI in an object store, with copies on the
machines."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sweeps_train.files.cache_folder import cache_folder

COPIES = "stored_sweeps"
"""Folder in the cache with this machine's copies of sweeps in object stores."""


def is_remote(location: str) -> bool:
    """Whether a folder is given by a URI.

    >>> is_remote("s3://bucket/sweeps"), is_remote("outputs")
    (True, False)
    """
    return "://" in location


def joined(folder: str, name: str) -> str:
    """Append a name to the URI of a folder; the store's options after ``?`` stay at the end.

    >>> joined("s3://bucket/sweeps/?region=eu-west-1", "first")
    's3://bucket/sweeps/first?region=eu-west-1'
    """
    address, separator, options = folder.partition("?")
    return f"{address.rstrip('/')}/{name}{separator}{options}"


def plain(uri: str) -> str:
    """Return a URI without the options of its store."""
    return uri.partition("?")[0]


def working_copy(location: str) -> Path:
    """Return the local folder in which the driver works on a sweep, given the URI of the sweep's folder in an object
    store."""
    parent, _, name = plain(location).rpartition("/")
    return cache_folder().absolute() / COPIES / "driver" / _slug(parent) / name


def node_copy(location: str, node: str) -> Path:
    """Return the local folder in which workers keep a trial's files while they train it, given the URI of the trial's
    folder. Ray's id of the node is part of the path, because nodes may share the cache."""
    return cache_folder().absolute() / COPIES / "workers" / node[:12] / _slug(plain(location))


def record_copy(location: str) -> Path:
    """Return the local folder with a record of all sweeps in a folder of an object store."""
    address, _, options = location.partition("?")
    return cache_folder().absolute() / COPIES / "records" / _slug(address.rstrip("/"), options)


def _slug(address: str, options: str = "") -> str:
    """Return a folder's name for the URI of a store, without its options, which may be secrets."""
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", address).strip("-")[-80:]
    whole = f"{address}?{options}" if options else address
    return f"{readable}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def empty_store_copy(version: str) -> Path:
    """Return the local file with an empty tracking store of one MLflow version."""
    return cache_folder().absolute() / "empty_stores" / f"mlflow-{version}.db"
