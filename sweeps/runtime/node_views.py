"""Check whether each node of a running cluster sees the driver's files: the sweep's folder, the working folder, Sweeps.

A node may lack Sweeps, so the function that runs on the nodes uses only Python's standard library until it knows that
Sweeps is there.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.runtime.cluster import nodes_of_ray
from sweeps.runtime.node_resources import on_node
from sweeps.runtime.shared_folder import MARK, SharedFolder

ANSWERS_WITHIN_S = 60.0
"""Maximum seconds for a process to start on a node and check its files; a node that does not answer is left out."""


@dataclass(frozen=True)
class NodeView:
    """Result of the check on one node."""

    id: str
    name: str
    """Host name and address."""
    has_sweeps: bool
    """Whether the node has the same code of Sweeps as this machine."""
    sees_working_folder: bool
    storage_error: str
    """Reason why the sweep's folder cannot be used on the node; empty if it can."""


def node_views(shared: SharedFolder | None, uri: str | None) -> list[NodeView]:
    """Check all nodes of the connected cluster, including the driver's own, where Ray may have been started with other
    code.

    Args:
        shared: The sweep's folder, if it is a plain one.
        uri: The folder's URI, if it is in an object store.
    """
    import ray

    alive = {node["NodeID"]: node for node in nodes_of_ray()}
    own_code = _fingerprint()()
    mark = None if shared is None else (str(Path(shared.folder) / MARK), shared.ident)
    with _working_mark() as working:
        asked: Any = ray.remote(max_retries=0)(_question())
        answers = {node: asked.options(**on_node(node)).remote(mark, uri, working, own_code) for node in alive}
        ready, _ = ray.wait([*answers.values()], num_returns=len(answers), timeout=ANSWERS_WITHIN_S)
        views = []
        for node, answer in answers.items():
            with contextlib.suppress(ray.exceptions.RayError):  # it has died meanwhile
                if answer in ready:
                    about = alive[node]
                    name = f"{about['NodeManagerHostname']} ({about['NodeManagerAddress']})"
                    views.append(NodeView(node, name, *ray.get(answer)))
    return views


@contextlib.contextmanager
def _working_mark() -> Iterator[str | None]:
    """Write a file by which other nodes recognise the working folder, and remove it at the end. Yields its path, or
    None if it cannot be written."""
    try:
        file = tempfile.NamedTemporaryFile(dir=Path.cwd(), prefix=".sweeps-")  # noqa: SIM115 - closed below
    except OSError:
        yield None
        return
    with file:
        yield file.name


def _fingerprint() -> Callable[[], str]:
    """Return a function that computes a checksum of the code of Sweeps on a node; it returns an empty string if there
    is none."""

    def fingerprint() -> str:
        import hashlib
        import importlib.util
        import pathlib

        sums = hashlib.sha256()
        for package in ("sweeps", "sweeps_train"):
            try:
                spec = importlib.util.find_spec(package)
            except ValueError:  # a module of this name has no spec
                spec = None
            if spec is None or spec.origin is None:
                return ""
            folder = pathlib.Path(spec.origin).parent
            for file in sorted(folder.rglob("*.py")):
                sums.update(f"{package}/{file.relative_to(folder).as_posix()}\n".encode() + file.read_bytes())
        return sums.hexdigest()

    return fingerprint


def _question() -> Callable[..., tuple[bool, bool, str]]:
    """Return the function that runs on a node; it is an inner function because Ray sends these with their code."""
    fingerprint = _fingerprint()

    def answer(
        mark: tuple[str, str] | None, uri: str | None, working: str | None, own_code: str
    ) -> tuple[bool, bool, str]:
        import pathlib
        import time

        has_sweeps = fingerprint() == own_code
        try:
            import sweeps.storage.object_store as stores
        except ImportError:
            stores = None  # type: ignore[assignment]
        error = ""
        if mark is not None:
            for _ in range(4):  # NFS may show a new file late
                try:
                    error = "" if pathlib.Path(mark[0]).read_text(encoding="ascii") == mark[1] else "another folder"
                except OSError as problem:
                    error = problem.strerror or str(problem)
                if not error:
                    break
                time.sleep(1.0)
        elif uri is not None and stores is not None:
            try:
                stores.ObjectStore(uri).read("driver.json")
            except Exception as problem:  # noqa: BLE001 - of the store's own library
                error = str(problem).partition("\n")[0]
        return has_sweeps, working is None or pathlib.Path(working).exists(), error

    return answer
