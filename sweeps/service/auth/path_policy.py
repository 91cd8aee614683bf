"""Files, addresses and hub names that a config may read."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sweeps.config.access import Access
from sweeps.tracking.uris import sqlite_path

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""Pattern of a hub name with its owner; names without one, such as `text` and `json`, make `datasets` read files of the
working folder."""
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|.*://|.*::")
"""Pattern of strings that `datasets`, fsspec, MLflow or a URL library may not treat as a local path."""
BUILTIN = re.compile(r"builtin:\w+")
MAGIC = re.compile(r"[*?\[]")


class PathPolicy:
    """Decides which files, addresses and hub names may be read. Paths are relative to the working folder, as in the
    driver."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._folders = [Path(each).expanduser().resolve() for each in access.allowed_folders]

    def refusal(self, text: str) -> str | None:
        """Return the reason why a model's or a data set's path may not be read; None if it may."""
        if BUILTIN.fullmatch(text):
            return None
        if ADDRESS.match(text):
            return self.refusal_of_address(text)
        if _is_local(text) or MAGIC.search(text):
            return self._refusal_of_file(text)
        if not HUB_NAME.fullmatch(text):
            return "is neither owner/name on the hub nor in a folder that the service allows"
        if not any(fnmatch.fnmatchcase(text, pattern) for pattern in self._access.allowed_hub):
            return "is not among the hub names that the service allows (access.allowed_hub)"
        return None

    def refusal_of_argument(self, text: str) -> str | None:
        """Return the reason why a string that may be a path may not be read; None if it may, or is not a path."""
        if ADDRESS.match(text):
            return self.refusal_of_address(text)
        return self._refusal_of_file(text) if _is_local(text) else None

    def refusal_of_records(self, text: str) -> str | None:
        """Return the reason why trials may not be read from a file, database or server; None if they may."""
        if text.startswith("$"):
            return "environment variables of the service cannot be read"
        if (database := sqlite_path(text)) is not None:
            return self._refusal_of_file(str(database))
        return self.refusal_of_address(text) if ADDRESS.match(text) else self._refusal_of_file(text)

    def refusal_of_address(self, text: str) -> str | None:
        """Return the reason why an address may not be used; None if it may."""
        if text.startswith("file:/") and "::" not in text:
            parts = urlsplit(text)
            return "names another machine" if parts.netloc else self._refusal_of_file(unquote(parts.path))
        allowed = [each for each in self._access.allowed_uris if text == each or _is_below(text, each)]
        return None if allowed else "is not among the addresses that the service allows (access.allowed_uris)"

    def _refusal_of_file(self, text: str) -> str | None:
        refusal = "is outside of the folders that the service allows (access.allowed_folders)"
        start = MAGIC.split(text)[0]
        try:
            root = Path(start if start == text else start.rpartition("/")[0] or ("/" if start[:1] == "/" else "."))
            if not self._allows(root):
                return refusal
            if not all(self._allows(path) for path in _files(text)):
                return f"{refusal}: a link leads out of them"
        except (OSError, RuntimeError, ValueError):  # a loop of links, an unknown user's home, a null byte
            return "cannot be read"
        return None

    def _allows(self, path: Path) -> bool:
        real = path.expanduser().resolve()
        return any(real == folder or folder in real.parents for folder in self._folders)


def _is_below(text: str, allowed: str) -> bool:
    """Whether an address is below an allowed one. A `..` may lead out of it, and servers may interpret the part after
    `?`, `#` or `@` differently; none of these is allowed."""
    rest = text.removeprefix(allowed)
    return allowed.endswith("/") and rest != text and re.search(r"(^|/)\.\.(/|$)|%|\\|[?#@]|::", rest) is None


def _is_local(text: str) -> bool:
    """Whether a string names an existing file on this machine, or has the form of a path."""
    if text.startswith(("/", "~", ".", "\\")) or ".." in text.split("/"):
        return True
    plain = MAGIC.split(text)[0]
    try:
        if plain == text:
            return bool(text) and Path(text).exists()
        folder = plain.rpartition("/")[0]  # the folder of a glob, since expanding all of it may take long
        return Path(folder).exists() if folder else any(glob.iglob(text.partition("/")[0]))  # noqa: PTH207
    except (OSError, ValueError):  # too long for a file name, or with a null byte
        return False


def _files(text: str) -> Iterator[Path]:
    """Yield the files of a path or glob; for a folder only its links, since nothing else can lead out of it."""
    local = Path(text).expanduser()
    if local.is_dir():
        yield from (path for path in local.rglob("*") if path.is_symlink())
    elif MAGIC.search(text) and not local.exists():
        for name in glob.iglob(str(local), recursive=True):  # noqa: PTH207 - Path.glob takes no absolute pattern
            yield Path(name)
    else:
        yield local
