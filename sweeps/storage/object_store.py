"""Access to a folder in an object store: S3, Google Cloud Storage, Azure, or any other file system of Arrow or
fsspec."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from sweeps.errors import UserError
from sweeps.storage.location import joined

BLOCK = 8 * 2**20
"""Number of bytes that are copied at a time."""
LARGEST_COPY = 5 * 2**30
"""Maximum bytes of an object that S3 copies in one request."""


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    """Convert errors that only fsspec's stores raise, such as HTTP errors, to ``OSError``; for a block or a
    function."""
    try:
        yield
    except (OSError, ImportError, ValueError):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


class ObjectStore:
    """Folder in an object store. Names of objects are relative to the folder; every write replaces a whole object.

    All methods raise ``OSError`` if the store does not answer, or refuses.

    >>> import tempfile
    >>> store = ObjectStore(f"file://{tempfile.mkdtemp()}/sweeps")
    >>> store.write("first/state", b"running")
    >>> store.read("first/state"), store.read("second/state"), (store / "first").names()
    (b'running', None, {'state': 7})
    """

    def __init__(self, uri: str) -> None:
        """Store the address; the store is not contacted yet.

        Args:
            uri: Address of the folder; options of the file system follow after ``?``, as Arrow defines them:
                ``s3://bucket/folder?endpoint_override=host:9000``.
        """
        self.uri = uri

    def __truediv__(self, name: str) -> ObjectStore:
        below = ObjectStore(joined(self.uri, name))
        if "opened" in self.__dict__:  # one connection serves all folders
            system, root = self.opened
            below.__dict__["opened"] = system, f"{root}/{name}"
        return below

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return ObjectStore, (self.uri,)

    def __str__(self) -> str:
        return self.uri

    @cached_property
    @_as_os_errors()
    def opened(self) -> tuple[Any, str]:
        """File system of the store, and the folder's path in it."""
        from sweeps_train.data.data_files import open_store

        system, root = open_store(self.uri)
        return system, root.rstrip("/")

    @_as_os_errors()
    def read(self, name: str) -> bytes | None:
        """Return an object's content; None if there is none."""
        system, root = self.opened
        try:
            with system.open_input_stream(f"{root}/{name}") as opened:
                content: bytes = opened.read()
                return content
        except FileNotFoundError:
            return None

    @_as_os_errors()
    def write(self, name: str, content: bytes) -> None:
        with self.writing(name) as opened:
            opened.write(content)

    @_as_os_errors()
    def upload(self, file: Path, name: str) -> None:
        """Write an object with the content of a file.

        Raises:
            OSError: Also if the file cannot be read.
        """
        with file.open("rb") as source, self.writing(name) as opened:
            while block := source.read(BLOCK):
                opened.write(block)

    @_as_os_errors()
    def download(self, name: str, file: Path) -> None:
        """Write the content of an object into a file.

        Raises:
            FileNotFoundError: There is no such object.
            OSError: Also if the file cannot be written.
        """
        system, root = self.opened
        file.parent.mkdir(parents=True, exist_ok=True)
        with system.open_input_stream(f"{root}/{name}") as opened, file.open("wb") as target:
            while block := opened.read(BLOCK):
                target.write(block)

    @_as_os_errors()
    def copy(self, name: str, target: ObjectStore) -> None:
        """Copy an object into another folder of the same store. The store copies it without a download, unless it is
        very large.

        Raises:
            FileNotFoundError: There is no such object.
        """
        system, root = self.opened
        size: int | None = system.get_file_info(f"{root}/{name}").size
        if size is None:
            raise FileNotFoundError(f"{self}: has no {name}")
        if size <= LARGEST_COPY and system.type_name != "local":
            system.copy_file(f"{root}/{name}", f"{target.opened[1]}/{name}")
            return
        with system.open_input_stream(f"{root}/{name}") as source, target.writing(name) as opened:
            while block := source.read(BLOCK):
                opened.write(block)

    @_as_os_errors()
    def names(self, under: str = "") -> dict[str, int]:
        """Return the sizes in bytes of all objects in a folder, by name, which includes the folder."""
        from pyarrow.fs import FileSelector

        system, root = self.opened
        folder = f"{root}/{under}".rstrip("/")
        selected = FileSelector(folder, allow_not_found=True, recursive=True)
        try:
            found = system.get_file_info(selected)
        except FileNotFoundError:  # a folder in it was removed meanwhile, where folders are more than parts of names
            found = system.get_file_info(selected)
        return {each.path.removeprefix(f"{root}/"): each.size for each in found if each.is_file}

    @_as_os_errors()
    def modified(self, name: str) -> float | None:
        """Return the Unix time at which an object was written; None if there is none."""
        system, root = self.opened
        info = system.get_file_info(f"{root}/{name}")
        return info.mtime.timestamp() if info.is_file else None

    @_as_os_errors()
    def folders(self) -> list[str]:
        """Return the names of the folders directly in this one."""
        from pyarrow.fs import FileSelector, FileType

        system, root = self.opened
        found = system.get_file_info(FileSelector(root, allow_not_found=True))
        return sorted(each.base_name for each in found if each.type == FileType.Directory)

    @_as_os_errors()
    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        system, root = self.opened
        with contextlib.suppress(FileNotFoundError):
            system.delete_file(f"{root}/{name}")

    @_as_os_errors()
    def remove_all(self) -> None:
        from pyarrow.fs import FileType

        system, root = self.opened
        if system.get_file_info(root).type == FileType.Directory:
            system.delete_dir(root)

    def writing(self, name: str) -> Any:
        """Open an object for writing; the object appears in the store when the file is closed."""
        system, root = self.opened
        path = f"{root}/{name}"
        if system.type_name == "local":  # other stores have no folders to be made
            system.create_dir(path.rpartition("/")[0])
        return system.open_output_stream(path)


def checked_store(key: str, uri: str) -> ObjectStore:
    """Return the object store of a URI in a config key after checking that it accepts objects.

    Raises:
        UserError: There is no such store, or it refuses; the message says why.
    """
    store, name = ObjectStore(uri), f".check-{uuid.uuid4().hex}"
    try:
        store.write(name, b"")
        store.remove(name)
    except ImportError as error:
        missing = f"needs the package {error.name}" if error.name else str(error)  # of fsspec: which one to install
        raise UserError(f"{key}={uri}: {missing}; pip install it here and on all nodes") from None
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"{key}={uri}: cannot be used ({reason}); check the address, that the bucket exists, and the credentials "
            "in the environment, such as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
        ) from None
    return store
