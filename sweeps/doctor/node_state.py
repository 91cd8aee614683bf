"""State of one node, read by a process that runs there."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import requests

from sweeps.errors import UserError
from sweeps.provenance.machine import nvidia_gpus
from sweeps.storage.location import is_remote
from sweeps.storage.object_store import ObjectStore, checked_store
from sweeps.tracking.client import first_cause

TEMPORARY = "temporary files"
"""Purpose of the folder in which Ray keeps its files."""
ANSWERS_WITHIN_S = 5.0
"""Maximum seconds for a tracking server to answer a node."""


@dataclass(frozen=True)
class Look:
    """Settings of the checks on a node."""

    packages: Sequence[str]
    """Names of the distributions whose versions are needed."""
    folder: str
    """Folder of sweeps: a path, or a URI in an object store."""
    marker: str
    """Name of a file that the driver has written into this folder."""
    folders: Mapping[str, str]
    """Folders whose free disk is measured: purpose and path."""
    server: str | None
    """URL of the tracking server; None if the store is not a server."""


@dataclass(frozen=True)
class NodeState:
    python: str
    versions: Mapping[str, str | None]
    """Versions of the requested distributions; None for one that is not installed."""
    driver: str
    """Version of NVIDIA's driver; empty without one."""
    gpus: Sequence[str]
    """Name and memory of each GPU that torch sees."""
    nccl: str
    """Version of NCCL in torch; empty without CUDA."""
    disks: Mapping[str, tuple[int, int]]
    """Free and total bytes by purpose of the folder."""
    sees_marker: bool
    """Whether the driver's marker file could be read."""
    write_error: str
    """Error of writing into the folder of sweeps; empty if writing works."""
    server_error: str
    """Error of reaching the tracking server; empty if it can be reached."""


def look(wanted: Look) -> NodeState:
    """Check the node on which this process runs."""
    gpus, nccl = _accelerators()
    sees, write_error = _folder(wanted.folder, wanted.marker)
    return NodeState(
        python=platform.python_version(),
        versions={name: installed_version(name) for name in wanted.packages},
        driver=next((gpu.split(", ")[1] for gpu in nvidia_gpus() if ", " in gpu), ""),
        gpus=gpus,
        nccl=nccl,
        disks={purpose: _free(folder) for purpose, folder in wanted.folders.items()},
        sees_marker=sees,
        write_error=write_error,
        server_error=_reach(wanted.server) if wanted.server else "",
    )


def _folder(folder: str, marker: str) -> tuple[bool, str]:
    """Return whether the node sees the driver's folder of sweeps, and the error of writing into it; empty if writing
    works."""
    try:
        if is_remote(folder):
            checked_store("output_dir", folder)
            return ObjectStore(folder).read(marker) is not None, ""
        if not (Path(folder) / marker).is_file():
            return False, ""
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
            return True, ""
    except UserError as error:
        return True, str(error)
    except OSError as error:
        return True, error.strerror or str(error)


def installed_version(name: str) -> str | None:
    """Return the version of a distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _accelerators() -> tuple[list[str], str]:
    """Return the GPUs that torch sees, and its version of NCCL; empty if torch cannot be imported."""
    try:
        import torch
    except ImportError:
        return [], ""
    if not torch.cuda.is_available():
        return [], ""
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    nccl = ""
    with contextlib.suppress(Exception):  # a build of torch without it, such as ROCm's
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return [f"{device.name}, {device.total_memory / 2**30:.0f} GiB" for device in devices], nccl


def _free(folder: str) -> tuple[int, int]:
    """Return the free and total bytes of the disk of a folder, or of its nearest existing parent."""
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    return usage.free, usage.total


def _reach(url: str) -> str:
    """Return the error of reaching a tracking server, with MLflow's certificates; empty if it answers with a status
    below 500."""
    own = os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH")
    certificate = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
    is_checked = os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() not in ("true", "1")
    try:
        answer = requests.get(
            f"{url.rstrip('/')}/health", timeout=ANSWERS_WITHIN_S, verify=certificate or is_checked, cert=own
        )
    except OSError as error:
        return first_cause(error)
    return "" if answer.status_code < 500 else f"status {answer.status_code}"
